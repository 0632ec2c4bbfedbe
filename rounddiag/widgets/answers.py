"""What the page may ask, and what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plotly.offline import get_plotlyjs

from rounddiag.figures import plot_trajectory
from rounddiag.stats import worst_tokens
from rounddiag.widgets.facts import Facts
from rounddiag.widgets.head import head_of
from rounddiag.widgets.observation import observation
from rounddiag.widgets.overview import (
    as_bytes,
    note_on,
    offered,
    overview,
    why_none,
)
from rounddiag.widgets.pictures import picture, thumbnails
from rounddiag.widgets.trajectory import trajectory_of
from rounddiag.widgets.worst import with_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rounddiag.figures.theme import ThemeName
    from rounddiag.widgets.session import Session


# Rows of the table of a selection.
_MAX_ROWS = 200


class Answers:
    """Answers from a session.

    Parameters
    ----------
    session : Session
    on_choice : callable
        Called when the page chose another token, or other cells.
    """

    def __init__(self, session: Session, on_choice: Callable[[], None]) -> None:
        self._session = session
        self._on_choice = on_choice
        self._facts = [Facts(batch) for batch in session.batches]
        self._known: dict[str, Callable[..., object]] = {
            "plotly": lambda: {"code": get_plotlyjs().encode()},
            "overview": self._overview,
            "set": self._set,
            "select": self._select,
            "trajectory": self._trajectory,
            "trajectory_figure": self._trajectory_figure,
            "observation": self._observation,
            "thumbnails": self._thumbnails,
            "image": self._image,
            "table": self._table,
        }

    def __call__(self, name: str, args: Mapping[str, Any]) -> object:
        """Answer one question."""
        return self._known[name](**args)

    def _overview(self, theme: ThemeName) -> dict[str, Any]:
        session, state = self._session, self._session.state
        both = session.comparison
        return {
            "head": head_of(session.batch, session.everything.tokens),
            "compared": both and {"names": both.names, "words": both.words},
            "options": {**session.options[state.batch], "layers": offered(session)},
            "state": state.as_dict(),
            "figures": overview(session, theme),
            "note": note_on(state) if len(session.shown.tokens) else "",
            "worst": {
                key: rows.to_dict("records") for key, rows in session.worst.items()
            },
            "counts": {
                **session.shown.beyond(state.threshold),
                "why_none": why_none(session.shown),
            },
            **self._num_selected(),
        }

    def _set(self, changes: Mapping[str, Any], theme: ThemeName) -> dict[str, Any]:
        """Change the state, unless it cannot be drawn then."""
        before = self._session.state
        self._session.change(changes)
        try:
            return self._overview(theme)
        except Exception:
            self._session.state = before
            raise

    def _select(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Take another token, or other cells and the worst token in them."""
        self._session.change(changes)
        if changes.get("cells"):
            place = self._session.worst_of(self._session.cells)
            self._session.change({"current": place})
        self._on_choice()
        return {"state": self._session.state.as_dict(), **self._num_selected()}

    def _num_selected(self) -> dict[str, int]:
        chosen = self._session.selected(self._session.shown.tokens)
        rounds = chosen.drop_duplicates(["sample", "round"])
        return {"num_tokens": len(chosen), "num_rounds": len(rounds)}

    def _trajectory(self, sample: int, batch: int) -> dict[str, Any]:
        session, state = self._session, self._session.state
        found = trajectory_of(
            session.batches[batch], sample, state.a, state.b, self._facts[batch]
        )
        both = session.comparison
        where = {} if both is None else both.place(batch, sample)
        return {**found, "batch": batch, **where}

    def _thumbnails(
        self, sample: int, indices: list[int], batch: int
    ) -> dict[str, Any]:
        return {"shots": thumbnails(self._session.batches[batch], sample, indices)}

    def _image(self, sample: int, index: int, batch: int) -> dict[str, Any]:
        return picture(self._session.batches[batch], sample, index)

    def _table(self) -> dict[str, Any]:
        chosen = self._session.selected(self._session.shown.tokens)
        worst = worst_tokens(chosen, num=_MAX_ROWS)
        worst = with_pieces(self._session.original, worst)
        return {
            "columns": [*worst.columns],
            "rows": worst.to_numpy().tolist(),
            "num_tokens": len(chosen),
        }

    def _observation(
        self, sample: int, start: int, stop: int, batch: int
    ) -> dict[str, Any]:
        of, facts = self._session.batches[batch], self._facts[batch]
        return observation(of, sample, start, stop, facts)

    def _trajectory_figure(
        self, sample: int, theme: ThemeName, batch: int
    ) -> dict[str, bytes]:
        of, state = self._session.batches[batch], self._session.state
        figure = plot_trajectory(of, sample=sample, a=state.a, b=state.b, theme=theme)
        return {"figure": as_bytes(figure)}

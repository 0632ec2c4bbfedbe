"""What the page may ask, and what it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plotly.offline import get_plotlyjs

from rounddiag.figures import plot_trajectory
from rounddiag.stats import worst_tokens
from rounddiag.widgets.facts import Facts
from rounddiag.widgets.head import head_of, options_of
from rounddiag.widgets.observation import observation
from rounddiag.widgets.overview import as_bytes, note_on, overview
from rounddiag.widgets.pictures import picture, thumbnails
from rounddiag.widgets.trajectory import trajectory_of

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
        batch = session.original
        self._facts = Facts(batch)
        self._options = options_of(batch)
        self._known: dict[str, Callable[..., object]] = {
            "plotly": lambda: {"code": get_plotlyjs().encode()},
            "overview": self._overview,
            "set": self._set,
            "select": self._select,
            "trajectory": self._trajectory,
            "trajectory_figure": self._trajectory_figure,
            "observation": self._observation,
            "thumbnails": lambda sample, indices: {
                "shots": thumbnails(batch, sample, indices)
            },
            "image": lambda sample, index: picture(batch, sample, index),
            "table": self._table,
        }

    def __call__(self, name: str, args: Mapping[str, Any]) -> object:
        """Answer one question."""
        return self._known[name](**args)

    def _overview(self, theme: ThemeName) -> dict[str, Any]:
        session, state = self._session, self._session.state
        found = session.shown
        return {
            "head": head_of(session.batch, session.everything.tokens),
            "options": self._options,
            "state": state.as_dict(),
            "figures": overview(found, state, theme),
            "note": note_on(state),
            "worst": {
                key: rows.to_dict("records") for key, rows in found.worst.items()
            },
            "counts": found.beyond(state.threshold),
        }

    def _set(self, changes: Mapping[str, Any], theme: ThemeName) -> dict[str, Any]:
        self._session.change(changes)
        return self._overview(theme)

    def _select(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Take another token, or other cells and the worst token in them."""
        self._session.change(changes)
        if changes.get("cells"):
            place = self._session.worst_of(self._session.cells)
            self._session.change({"current": place})
        self._on_choice()
        chosen = self._session.selected(self._session.shown.tokens)
        return {
            "state": self._session.state.as_dict(),
            "num_tokens": len(chosen),
            "num_rounds": len(chosen.drop_duplicates(["sample", "round"])),
        }

    def _trajectory(self, sample: int) -> dict[str, Any]:
        batch, state = self._session.original, self._session.state
        return trajectory_of(batch, sample, state.a, state.b, self._facts)

    def _table(self) -> dict[str, Any]:
        chosen = self._session.selected(self._session.shown.tokens)
        worst = worst_tokens(chosen, num=_MAX_ROWS)
        return {
            "columns": [*worst.columns],
            "rows": worst.to_numpy().tolist(),
            "num_tokens": len(chosen),
        }

    def _observation(self, sample: int, start: int, stop: int) -> dict[str, Any]:
        return observation(self._session.original, sample, start, stop, self._facts)

    def _trajectory_figure(self, sample: int, theme: ThemeName) -> dict[str, bytes]:
        figure = plot_trajectory(self._session.batch, sample=sample, theme=theme)
        return {"figure": as_bytes(figure)}

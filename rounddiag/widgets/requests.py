"""What the page may ask, and what it is told."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from plotly.offline import get_plotlyjs

from rounddiag import schema
from rounddiag.batch.html import describe_sources, failed_checks
from rounddiag.core import sample_frame
from rounddiag.core.columns import extra_column_names
from rounddiag.figures import plot_trajectory
from rounddiag.figures._parts.lines import MAX_LINES
from rounddiag.figures.colored_text import NO_TEXT
from rounddiag.figures.rounds import LAYERS
from rounddiag.schema import TOKENS
from rounddiag.stats import worst_cells, worst_samples, worst_tokens
from rounddiag.stats.heatmap_rows import Order
from rounddiag.stats.perplexity import overall
from rounddiag.text import pieces
from rounddiag.text.roles import ROLES
from rounddiag.widgets.figures import as_bytes, note_on, offered, overview, why_none
from rounddiag.widgets.images import picture, thumbnails
from rounddiag.widgets.sample_view import Facts, observation, trajectory_of
from rounddiag.widgets.state import AXES
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.figures._parts.canvas import ThemeName
    from rounddiag.widgets.session import Session


def head_of(batch: Batch, tokens: pd.DataFrame) -> dict[str, Any]:
    """Return name, step, counts, chips, failed checks and the verdict of a batch.

    Parameters
    ----------
    batch : Batch
    tokens : DataFrame
        The token frame of all of it, for the pair that is looked at.
    """
    diff = tokens["diff"].to_numpy()
    return {
        "name": name_of(batch),
        "step": batch.step,
        "num_samples": batch.num_samples,
        "num_rounds": batch.num_rounds,
        "num_tokens": batch.num_tokens,
        "chips": [*_chips(batch, diff)],
        "failed": failed_checks(batch.meta),
        "verdict": _verdict(diff),
    }


def name_of(batch: Batch) -> str:
    """Return the name of a batch's file, or a word for one that was never saved."""
    source = batch.meta.get("source")
    return PurePath(source).name if isinstance(source, str) else "batch"


def options_of(batch: Batch) -> dict[str, Any]:
    """Return what can be chosen in this batch."""
    samples = sample_frame(batch)
    lacking = {"reward": "reward" not in samples, "group": "group_id" not in samples}
    return {
        "batch": [0],
        "heatmap": ["batch"],
        "metric": [
            [name, metric.short, metric.hint]
            for name, metric in schema.METRICS.items()
            if metric.in_explorer
        ],
        "order": [order for order in get_args(Order) if not lacking.get(order)],
        "scores": ["old", "rollout", *batch.scores],
        "by": [*_dividing(batch, samples)],
        "axis": [AXES[0], *(AXES[1:] if batch.images is not None else AXES[2:])],
        "layers": LAYERS,
        "groups": [*dict.fromkeys(batch.group_ids or ())],
        "roles": [] if batch.tokenizer is None or batch.is_redacted else [*ROLES],
        "samples": [*(batch.sample_ids or ())],
    }


def _dividing(batch: Batch, samples: pd.DataFrame) -> Iterator[str]:
    """Give the columns of samples and rounds that have a few values."""
    for name in dict.fromkeys([*extra_column_names(batch), *samples.columns]):
        column = batch.round_columns.get(name, samples.get(name))
        if (
            column is not None
            and 1 < len(set(np.asarray(column).tolist())) <= MAX_LINES
        ):
            yield name


def _chips(batch: Batch, diff: np.ndarray[Any, Any]) -> Iterator[dict[str, Any]]:
    for label, value in describe_sources(batch.meta).items():
        if label in ("mask", "old log-probs", "sampling"):
            yield {"label": label, "value": value, "tone": "plain"}
    facts = batch.meta.get("capture")
    if isinstance(facts, dict) and facts.get("num_saved"):
        share = f"{facts['num_saved']:,} of {facts.get('num_samples', '?'):,} samples"
        yield {"label": "saved", "value": share, "tone": "warn"}
    num = int((~np.isfinite(diff)).sum())
    tone = "warn" if num else "plain"
    yield {"label": "not finite", "value": pluralize(num, "token"), "tone": tone}


def _verdict(diff: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Say the signed mean, and how many tokens are far off."""
    found = overall(diff)
    if found is None:
        return {"value": "nothing can be compared", "tone": "warn"}
    return {"value": str(found), "tone": "warn" if found.share_far else "plain"}


def worst_of(batch: Batch, tokens: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Find the worst of some tokens of a batch, the worst first.

    Parameters
    ----------
    batch : Batch
    tokens : DataFrame
        A token frame of it, or a part of that.

    Returns
    -------
    dict of DataFrame
        `tokens`, with the `piece` of each, `rounds` and `samples`.
    """
    return {
        "tokens": with_pieces(batch, worst_tokens(tokens)),
        "rounds": worst_cells(tokens),
        "samples": _with_names(batch, worst_samples(tokens)),
    }


def with_pieces(batch: Batch, worst: pd.DataFrame) -> pd.DataFrame:
    """Add the text of each token, as `piece`, to a frame with their places."""
    if batch.is_redacted:
        return worst.assign(piece=NO_TEXT)
    sample, index, token = (worst[key].to_numpy() for key in TOKENS.keys)
    first = np.searchsorted(batch.rounds.sample.cpu().numpy(), sample)
    places = batch.rounds.start.cpu().numpy()[first + index] + token
    ids = batch.response_ids.cpu().numpy()[places]
    texts = pieces(ids, batch.tokenizer, starts=range(len(ids)))
    return worst.assign(piece=texts)


def _with_names(batch: Batch, worst: pd.DataFrame) -> pd.DataFrame:
    if batch.sample_ids is None:
        return worst
    return worst.assign(sample_id=[batch.sample_ids[i] for i in worst["sample"]])


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

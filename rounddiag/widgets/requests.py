"""The requests that the page may send, and the payload of each reply."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
from plotly.offline import get_plotlyjs

from rounddiag.batch.html import describe_sources, failed_checks
from rounddiag.stats import worst_tokens
from rounddiag.stats.perplexity import overall
from rounddiag.widgets.figures import (
    available_layers,
    empty_reason,
    filter_note,
    overview_figures,
    token_figure,
)
from rounddiag.widgets.filters import add_pieces
from rounddiag.widgets.images import full_screenshot, thumbnails
from rounddiag.widgets.sample_view import BatchCache, observed_tokens, sample_payload
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.figures._parts.canvas import ThemeName
    from rounddiag.widgets.session import Session


# Rows of the table of a selection.
_MAX_ROWS = 200


class RequestHandler:
    """Replies to the page from a session.

    Parameters
    ----------
    session : Session
    on_select : callable
        Called when the page selected another token, or other cells.
    """

    def __init__(self, session: Session, on_select: Callable[[], None]) -> None:
        self._session = session
        self._on_select = on_select
        self._caches = [BatchCache(batch) for batch in session.batches]
        self._handlers: dict[str, Callable[..., object]] = {
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
        """Return the payload of one reply."""
        return self._handlers[name](**args)

    def _overview(self, theme: ThemeName) -> dict[str, Any]:
        session, state = self._session, self._session.state
        pair, filtered = session.pair, session.filtered
        worst = {key: rows.to_dict("records") for key, rows in session.worst.items()}
        return {
            "head": describe_batch(session.batch, session.unfiltered.tokens),
            "pair": pair and {"names": pair.names, "description": pair.description},
            "options": {
                **session.options[state.batch],
                "layers": available_layers(session),
            },
            "state": state.as_dict(),
            "figures": overview_figures(session, theme),
            "note": filter_note(state) if len(filtered.tokens) else "",
            "worst": worst,
            "counts": {
                **filtered.count_beyond(state.threshold),
                "empty_reason": empty_reason(filtered),
            },
            **self._count_selected(),
        }

    def _set(self, changes: Mapping[str, Any], theme: ThemeName) -> dict[str, Any]:
        """Change the state, unless the result cannot be drawn."""
        before = self._session.state
        self._session.change(changes)
        try:
            return self._overview(theme)
        except Exception:
            self._session.state = before
            raise

    def _select(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change the current token, or select cells and go to their worst token."""
        self._session.change(changes)
        if changes.get("cells"):
            place = self._session.worst_token(self._session.selected_cells)
            self._session.change({"current": place})
        self._on_select()
        return {"state": self._session.state.as_dict(), **self._count_selected()}

    def _selected_tokens(self) -> pd.DataFrame:
        return self._session.select_rows(self._session.filtered.tokens)

    def _count_selected(self) -> dict[str, int]:
        tokens = self._selected_tokens()
        rounds = tokens.drop_duplicates(["sample", "round"])
        return {"num_tokens": len(tokens), "num_rounds": len(rounds)}

    def _trajectory(self, sample: int, batch: int) -> dict[str, Any]:
        session, state = self._session, self._session.state
        payload = sample_payload(
            session.batches[batch], sample, state.a, state.b, self._caches[batch]
        )
        names = session.pair.describe_sample(batch, sample) if session.pair else {}
        return {**payload, "batch": batch, **names}

    def _trajectory_figure(
        self, sample: int, theme: ThemeName, batch: int
    ) -> dict[str, bytes]:
        return token_figure(
            self._session.batches[batch], sample, self._session.state, theme
        )

    def _observation(
        self, sample: int, start: int, stop: int, batch: int
    ) -> dict[str, Any]:
        data, cache = self._session.batches[batch], self._caches[batch]
        return observed_tokens(data, sample, start, stop, cache)

    def _thumbnails(
        self, sample: int, indices: list[int], batch: int
    ) -> dict[str, Any]:
        return {"shots": thumbnails(self._session.batches[batch], sample, indices)}

    def _image(self, sample: int, index: int, batch: int) -> dict[str, Any]:
        return full_screenshot(self._session.batches[batch], sample, index)

    def _table(self) -> dict[str, Any]:
        tokens = self._selected_tokens()
        worst = worst_tokens(tokens, num=_MAX_ROWS)
        worst = add_pieces(self._session.full_batch, worst)
        return {
            "columns": [*worst.columns],
            "rows": worst.to_numpy().tolist(),
            "num_tokens": len(tokens),
        }


def describe_batch(batch: Batch, tokens: pd.DataFrame) -> dict[str, Any]:
    """Return the payload of the head line: name, sizes, failed checks, verdict.

    Parameters
    ----------
    batch : Batch
    tokens : DataFrame
        The token frame of all of it, for the chosen pair of scores.
    """
    diff = tokens["diff"].to_numpy()
    return {
        "name": batch_name(batch),
        "step": batch.step,
        "num_samples": batch.num_samples,
        "num_rounds": batch.num_rounds,
        "num_tokens": batch.num_tokens,
        "chips": [*_facts(batch, diff)],
        "failed": failed_checks(batch.meta),
        "verdict": _verdict(diff),
    }


def batch_name(batch: Batch) -> str:
    """Return the name of a batch's file, or "batch" for one that was never saved."""
    source = batch.meta.get("source")
    return PurePath(source).name if isinstance(source, str) else "batch"


def _facts(batch: Batch, diff: np.ndarray[Any, Any]) -> Iterator[dict[str, Any]]:
    for label, value in describe_sources(batch.meta).items():
        if label in ("mask", "old log-probs", "sampling"):
            yield {"label": label, "value": value, "tone": "plain"}
    capture = batch.meta.get("capture")
    if isinstance(capture, dict) and capture.get("num_saved"):
        all_samples = capture.get("num_samples", "?")
        share = f"{capture['num_saved']:,} of {all_samples:,} samples"
        yield {"label": "saved", "value": share, "tone": "warn"}
    num = int((~np.isfinite(diff)).sum())
    tone = "warn" if num else "plain"
    yield {"label": "not finite", "value": pluralize(num, "token"), "tone": tone}


def _verdict(diff: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the signed mean, and the share of tokens with a large |diff|."""
    result = overall(diff)
    if result is None:
        return {"value": "no token has both log-probs", "tone": "warn"}
    return {"value": str(result), "tone": "warn" if result.share_far else "plain"}

"""Inputs of statistics: batches, partially captured batches, and token frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag import schema
from rounddiag.batch import Batch
from rounddiag.core.columns import sample_clusters
from rounddiag.errors import FrameError
from rounddiag.stats.grouping import number_values
from rounddiag.stats.intervals import Resampling, is_few

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag._typing import Array
    from rounddiag.core.divergence import TokenMetric


_BROKEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_DERIVED = ("share_nonfinite",)  # from other columns of the summary


def stored_summary_rows(
    batch: Batch, *, cluster: str | None = None, ci: float = 0.95
) -> dict[str, Any] | None:
    """Return the summary over all samples of the step, as a partial capture stores it.

    A Recorder with `max_samples` writes it into the metadata of its file.
    """
    facts = _facts(batch)
    known = "sample" if batch.group_ids is None else "group"
    is_whole = facts.get("num_saved") == batch.num_samples
    if not is_whole or not facts.get("rounds") or cluster not in (None, known):
        return None
    try:
        return rows_from_totals(facts["rounds"], ci)
    except _BROKEN:
        return None


def drop_worst_picks(batch: Batch) -> Batch:
    """Drop the samples that a partial capture kept because they were its worst.

    A batch that has only such samples is returned unchanged.
    """
    picked = batch.sample_columns.get("picked")
    if "rounds" not in _facts(batch) or picked is None:
        return batch
    is_drawn = picked == "random"
    return batch.where(is_drawn) if np.any(is_drawn) else batch


def num_picked(batch: Batch) -> int:
    """Count the samples that `drop_worst_picks` drops."""
    return batch.num_samples - drop_worst_picks(batch).num_samples


def _facts(batch: Batch) -> dict[str, Any]:
    facts = batch.meta.get("capture")
    return facts if isinstance(facts, dict) else {}


def rows_from_totals(rounds: list[dict[str, Any]], ci: float) -> dict[str, Any]:
    """Return the columns of a summary, from the totals of all rounds by cluster."""
    shape = len(rounds), len(rounds[0]["cluster_tokens"]) if rounds else 0
    totals, counts = (
        np.array([entry[name] for entry in rounds], dtype=np.float64).reshape(shape)
        for name in ("cluster_abs_diff", "cluster_tokens")
    )
    used: Array = np.asarray((counts > 0).any(axis=0))
    used[:1] |= not used.any()  # draws are of one cluster at least
    totals, counts = totals[:, used], counts[:, used]
    draws = Resampling(int(used.sum()))
    # One by one: the product of many is large enough for threads to wait on each other.
    intervals = [
        draws.ratio_interval(*one, ci) for one in zip(totals, counts, strict=True)
    ]
    floats = [c.name for c in schema.SUMMARY.columns if "float" in c.dtype]
    unknown = dict.fromkeys(floats, float("nan"))  # columns newer than the file
    rows = [
        {
            **unknown,
            **entry,
            "mean": entry["mean_abs_diff"],
            "ci_low": low,
            "ci_high": high,
            "is_few": is_few(tokens),
        }
        for entry, (low, high), tokens in zip(rounds, intervals, counts, strict=True)
    ]
    return {
        column.name: np.array([row[column.name] for row in rows], dtype=column.dtype)
        for column in schema.SUMMARY.columns
        if column.name not in _DERIVED
    }


def without_worst_picks(
    data: Batch | pd.DataFrame, kind: str = "token"
) -> Batch | pd.DataFrame:
    """Return a batch without its worst picks (`drop_worst_picks`), or a frame as it is.

    Examples
    --------
    >>> without_worst_picks(pd.DataFrame({"diff": [0.5]}))
       diff
    0   0.5
    """
    if isinstance(data, Batch):
        return drop_worst_picks(data)
    require_frame(data, kind)
    return data


def require_frame(data: object, kind: str = "token") -> None:
    """Raise a FrameError unless the data is a DataFrame."""
    if not isinstance(data, pd.DataFrame):
        raise FrameError.build(
            expected=f"a Batch or a {kind} frame",
            found=f"a {type(data).__name__}",
            advice="Open a file with `rounddiag.load(path)` first.",
        )


def token_values(
    tokens: Mapping[str, Array] | pd.DataFrame, measure: TokenMetric
) -> Array:
    """Return the metric of every token; NaN where its diff is not finite.

    Examples
    --------
    >>> from rounddiag.core.divergence import get_measure
    >>> token_values({"diff": np.array([-1.0, np.inf])}, get_measure("k2"))
    array([0.5, nan])
    """
    require_column(tokens, measure.source_column)
    diff, column = (
        np.asarray(tokens[name]) for name in ("diff", measure.source_column)
    )
    finite = np.isfinite(diff)
    if finite.all():
        return measure.values(column)
    values = np.full(len(diff), np.nan)
    values[finite] = measure.values(column[finite])
    return values


def require_column(tokens: Mapping[str, Array] | pd.DataFrame, column: str) -> None:
    """Raise a FrameError unless the tokens have the column of a metric."""
    if column not in tokens:
        raise FrameError.build(
            expected=f"a token frame with `{column}`",
            found="one without it and without `rollout_log_prob`",
            advice=f'Build it with `rounddiag.token_frame(batch, ["{column}"])`.',
        )


def number_clusters(data: Batch | pd.DataFrame) -> Array:
    """Return the cluster of each sample, counted from 0: its group, or itself alone.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"sample": [0, 0, 1, 2], "group_id": ["y", "y", "x", "y"]})
    >>> number_clusters(frame)
    array([1, 0, 1])
    """
    if isinstance(data, Batch):
        return sample_clusters(data)
    if "group_id" not in data:
        return np.arange(data["sample"].to_numpy().max(initial=-1) + 1)
    known = data.drop_duplicates("sample")
    sample = known["sample"].to_numpy()
    found = np.zeros(sample.max(initial=-1) + 1, dtype=np.int64)
    found[sample] = number_values("group_id", known["group_id"].to_numpy())[0]
    return found

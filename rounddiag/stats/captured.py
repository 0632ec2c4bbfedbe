"""Files that hold a part of their batch: what the whole came to, or a fair part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag import schema
from rounddiag.stats.resampling import Resampling, is_few

if TYPE_CHECKING:
    from rounddiag.batch import Batch

_BROKEN = (AttributeError, IndexError, KeyError, TypeError, ValueError)
# What the first files with `max_samples` do not have, and what the others tell.
_LATER, _DERIVED = ("share_zero", "p90"), ("share_nonfinite",)


def rows_of_all(
    batch: Batch, *, cluster: str | None = None, ci: float = 0.95
) -> list[dict[str, Any]] | None:
    """Return the summary's rows over all samples that the trainer had.

    A file of a Recorder with `max_samples` has them in its metadata.

    Parameters
    ----------
    batch : Batch
    cluster : {"sample", "group"}, optional
        As in `round_summary`.
    ci : float
        How often intervals should cover.

    Returns
    -------
    list of dict, or None
        None where every sample is there, for some of the file's samples only, and for
        samples as clusters where there are groups, and for another pair of scores.
    """
    facts = _facts(batch)
    known = "sample" if batch.group_ids is None else "group"
    is_whole = facts.get("num_saved") == batch.num_samples
    if not is_whole or not facts.get("rounds") or cluster not in (None, known):
        return None
    try:
        return _with_intervals(facts["rounds"], ci)
    except _BROKEN:
        return None


def fair_part(batch: Batch) -> Batch:
    """Leave out the samples that a file holds because they were the worst of theirs.

    Of these alone nothing is left out.
    """
    picked = batch.sample_columns.get("picked")
    if "rounds" not in _facts(batch) or picked is None:
        return batch
    is_drawn = picked == "random"
    return batch.where(is_drawn) if np.any(is_drawn) else batch


def num_picked(batch: Batch) -> int:
    """Count the samples that `fair_part` leaves out."""
    return batch.num_samples - fair_part(batch).num_samples


def _facts(batch: Batch) -> dict[str, Any]:
    facts = batch.meta.get("capture")
    return facts if isinstance(facts, dict) else {}


def _with_intervals(rounds: list[dict[str, Any]], ci: float) -> list[dict[str, Any]]:
    sums = [
        [
            np.array(entry[name], dtype=np.float64)
            for name in ("cluster_abs_diff", "cluster_tokens")
        ]
        for entry in rounds
    ]
    used = np.any([counts > 0 for _, counts in sums], axis=0)
    draws = Resampling(int(used.sum()))
    return [
        _row(
            {**entry, "is_few": is_few(counts)},
            draws.ratio_interval(totals[used], counts[used], ci),
        )
        for entry, (totals, counts) in zip(rounds, sums, strict=True)
    ]


def _row(entry: dict[str, Any], interval: tuple[float, float]) -> dict[str, Any]:
    known = {**dict.fromkeys(_LATER, float("nan")), **entry}
    known |= {"mean": entry["mean_abs_diff"]}
    known |= dict(zip(("ci_low", "ci_high"), interval, strict=True))
    return {
        column.name: (int if "int" in column.dtype else float)(known[column.name])
        for column in schema.SUMMARY.columns
        if column.name not in _DERIVED
    }

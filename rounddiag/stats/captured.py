"""Files that hold a part of their batch: what the whole came to, or a fair part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag import schema
from rounddiag.stats.resampling import Resampling

if TYPE_CHECKING:
    from rounddiag.batch import Batch

_BROKEN = (AttributeError, KeyError, TypeError, ValueError)


def rows_of_all(batch: Batch) -> list[dict[str, Any]] | None:
    """Return the summary's rows over all samples that the trainer had.

    A file of a Recorder with `max_samples` has them in its metadata.

    Returns
    -------
    list of dict, or None
        None where every sample is there, and for some of the file's samples only.
    """
    facts = _facts(batch)
    if facts.get("num_saved") != batch.num_samples:
        return None
    try:
        return [_with_interval(entry) for entry in facts["rounds"]]
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


def _facts(batch: Batch) -> dict[str, Any]:
    facts = batch.meta.get("capture")
    return facts if isinstance(facts, dict) else {}


def _with_interval(entry: dict[str, Any]) -> dict[str, Any]:
    totals, counts = (
        np.array(entry[name], dtype=np.float64)
        for name in ("cluster_abs_diff", "cluster_tokens")
    )
    low, high = Resampling(len(totals)).ratio_interval(totals, counts)
    known = {**entry, "ci_low": low, "ci_high": high}
    return {
        column.name: (int if "int" in column.dtype else float)(known[column.name])
        for column in schema.SUMMARY.columns
    }

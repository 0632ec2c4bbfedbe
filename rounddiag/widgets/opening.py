"""What `explore` and `report` are given, as one or two batches with their names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias, TypeVar, cast

from rounddiag.batch import Batch
from rounddiag.core.scores import ScoredAgain
from rounddiag.errors import FrameError
from rounddiag.runs import Run, run_in
from rounddiag.stats.inputs import open_measured
from rounddiag.widgets.requests import batch_name

BatchLike: TypeAlias = Batch | str | os.PathLike[str]
BatchesLike: TypeAlias = BatchLike | Sequence[BatchLike] | Mapping[str, BatchLike]
Opened = TypeVar("Opened")
_PAIR = 2


def open_folder(data: Opened) -> Opened | Run:
    """Return the run where the data is the path of a folder of one, else the data."""
    return (run_in(data) if isinstance(data, str | os.PathLike) else None) or data


def scores_of(data: BatchesLike | ScoredAgain) -> dict[str, str]:
    """Return the scores that are compared where the data says which."""
    return (
        dict(zip("ab", data.pair, strict=True)) if isinstance(data, ScoredAgain) else {}
    )


def open_batches(source: BatchesLike | ScoredAgain) -> dict[str, Batch]:
    """Load the paths among one or two sources, and name each batch.

    Examples
    --------
    >>> [*open_batches(["sample_data/healthy.parquet", "sample_data/stale.parquet"])]
    ['healthy.parquet', 'stale.parquet']
    """
    if isinstance(source, ScoredAgain):
        return {"proof": source.batch}
    if isinstance(source, Mapping):
        _check_two(len(source))
        return {
            str(name): open_measured(entry).require_batch()
            for name, entry in source.items()
        }
    if not isinstance(source, list | tuple):
        batch = open_measured(cast("BatchLike", source)).require_batch()
        return {batch_name(batch): batch}
    _check_two(len(source))
    batches = [open_measured(entry).require_batch() for entry in source]
    names = [batch_name(batch) for batch in batches]
    if names[0] == names[1]:
        names = ["batch 0", "batch 1"]
    return dict(zip(names, batches, strict=True))


def _check_two(num: int) -> None:
    if num != _PAIR:
        raise FrameError.build(
            key="batch",
            expected="one batch or path, or two of them in a list or a dictionary",
            found=f"{num} of them",
            advice="Compare two of them at a time.",
        )

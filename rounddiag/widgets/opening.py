"""What an explorer is given: a batch or a file, or two of them and their names."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from rounddiag.batch import Batch
from rounddiag.errors import FrameError
from rounddiag.loaders import load
from rounddiag.widgets.head import name_of

One: TypeAlias = Batch | str | os.PathLike[str]
Given: TypeAlias = One | Sequence[One] | Mapping[str, One]
_PAIR = 2


def opened(given: Given) -> dict[str, Batch]:
    """Open what is a path, and name each batch.

    Parameters
    ----------
    given : Batch, path-like, or a sequence or mapping of two of them

    Returns
    -------
    dict of str to Batch
        One or two. Without names of their own they are called by their files, or
        "batch 0" and "batch 1" where that does not tell them apart.

    Raises
    ------
    FrameError
        If there are several, but not two.

    Examples
    --------
    >>> [*opened(["sample_data/healthy.parquet", "sample_data/stale.parquet"])]
    ['healthy.parquet', 'stale.parquet']
    """
    if isinstance(given, Mapping):
        _check_two(len(given))
        return {str(name): _batch(one) for name, one in given.items()}
    if not isinstance(given, list | tuple):
        batch = _batch(given)
        return {name_of(batch): batch}
    _check_two(len(given))
    batches = [_batch(one) for one in given]
    names = [name_of(batch) for batch in batches]
    if names[0] == names[1]:
        names = ["batch 0", "batch 1"]
    return dict(zip(names, batches, strict=True))


def _check_two(num: int) -> None:
    if num != _PAIR:
        raise FrameError.build(
            key="batch",
            expected="one batch or path, or two of them in a list or a dictionary",
            found=f"{num} of them",
            advice="`rounddiag.plot_compare` takes up to 8 batches.",
        )


def _batch(one: object) -> Batch:
    return one if isinstance(one, Batch) else load(one)

"""Which samples of two batches are the same ones: those of the same id."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def places_of(ids: Sequence[str] | None) -> dict[str, int]:
    """Say which sample has each id; an id of several samples names none.

    Examples
    --------
    >>> places_of(["x", "y", "x"])
    {'y': 1}
    """
    once = {name for name, num in Counter(ids or ()).items() if num == 1}
    return {name: place for place, name in enumerate(ids or ()) if name in once}


def shared_ids(
    before: Mapping[str, int], after: Mapping[str, int], num_smaller: int
) -> list[str]:
    """Return the ids that two batches share, in the order of the first.

    Parameters
    ----------
    before, after : mapping of str to int
        As `places_of` gives them.
    num_smaller : int
        How many samples the smaller batch has.

    Returns
    -------
    list of str
        None where they are fewer than half of the smaller batch's samples: ids that
        agree by accident make no pairs.
    """
    shared = [name for name in before if name in after]
    return shared if 2 * len(shared) >= num_smaller else []


def partners(before: Sequence[str] | None, after: Sequence[str] | None) -> pd.DataFrame:
    """Pair the samples of two batches by their ids.

    Parameters
    ----------
    before, after : sequence of str, optional
        `Batch.sample_ids` of the first batch, and of the one compared with it.

    Returns
    -------
    DataFrame
        `sample_id, baseline_sample, sample`: one row a pair, by the number in the first
        batch and in the other; in the order of the first. None where fewer than half of
        the smaller batch's samples are in both.

    Examples
    --------
    >>> partners(["x", "y", "z"], ["z", "x"])
      sample_id  baseline_sample  sample
    0         x                0       1
    1         z                2       0
    """
    first, other = places_of(before), places_of(after)
    num_smaller = min(len(before or ()), len(after or ()))
    rows = [
        (name, first[name], other[name])
        for name in shared_ids(first, other, num_smaller)
    ]
    columns = {"sample_id": "object", "baseline_sample": "int32", "sample": "int32"}
    return pd.DataFrame(rows, columns=[*columns]).astype(columns)

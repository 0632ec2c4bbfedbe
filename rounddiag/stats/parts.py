"""A statistic of each part that a column divides rounds, or samples, into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.core.open_columns import spread
from rounddiag.errors import FrameError
from rounddiag.stats.by import tokens_by, values_of_batch, values_of_frame
from rounddiag.stats.splits import Split

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]


def each(
    rows: pd.DataFrame,
    split: Split | None,
    statistic: Callable[[pd.DataFrame], pd.DataFrame],
) -> pd.DataFrame:
    """Return the statistic of the rows of each part, one below the other.

    Parameters
    ----------
    rows : DataFrame
    split : Split, optional
        Which part each row is of; what the part is called comes first in the result.
        All rows are one part without it.
    statistic : callable
    """
    if split is None:
        return statistic(rows)
    found = [statistic(rows[split.codes == code]) for code in range(len(split.values))]
    parts = np.repeat(np.arange(len(found)), [len(part) for part in found])
    together = pd.concat(found, ignore_index=True) if found else statistic(rows)
    split.tell(together, parts)
    return together


def parts_of_rounds(
    data: Batch | pd.DataFrame, rounds: pd.DataFrame, by: str | None
) -> Split | None:
    """Divide the rounds of a batch or a token frame by a column.

    Raises
    ------
    FrameError
        If there is no such column, or it has more than 100 values.
    """
    if by is None:
        return None
    if isinstance(data, Batch):
        return Split.of(by, values_of_batch(data, by))
    num = rounds["num_tokens"].to_numpy()
    return Split.of(by, values_of_frame(data, np.cumsum(num) - num, by))


def parts_of_cohorts(
    data: Batch | pd.DataFrame, rounds: pd.DataFrame, by: str | None
) -> Split | None:
    """Divide rounds by a column that has one value for all rounds of a sample.

    Raises
    ------
    FrameError
        If a sample has several values.
    """
    split = parts_of_rounds(data, rounds, by)
    if split is not None:
        _one_a_sample(split, rounds["sample"].to_numpy())
    return split


def parts_of_samples(
    data: Batch | pd.DataFrame, samples: pd.DataFrame, by: str | None
) -> Split | None:
    """Divide the samples of a batch or a sample frame by a column.

    Raises
    ------
    FrameError
        If there is no such column, it has more than 100 values, or it is of rounds and
        a sample has several.
    """
    if by is None:
        return None
    if by in samples or not isinstance(data, Batch):
        return Split.of(by, tokens_by(samples, by))
    sample = data.rounds.sample.cpu().numpy()
    values = values_of_batch(data, by)
    first = _one_a_sample(Split.of(by, values), sample)
    return Split.of(by, spread(values[first], sample[first], len(samples)))


def _one_a_sample(split: Split, sample: Array) -> Array:
    """Return where the first round of each sample is, if all have its value."""
    _, first, place = np.unique(sample, return_index=True, return_inverse=True)
    if (split.codes != split.codes[first][place]).any():
        raise FrameError.build(
            key="by",
            expected="a column that has one value for all rounds of a sample",
            found=f"several values of {split.name!r}",
            advice="Choose a column of samples: what is divided here are samples.",
        )
    return first

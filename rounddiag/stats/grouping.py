"""Grouping of rounds, samples and tokens by a column, or by ranges of rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns import Column
from rounddiag.core import sample_frame
from rounddiag.core.measured import Measured, number_values, unfit_column
from rounddiag.errors import FrameError, require_one_of
from rounddiag.schema import SUMMARY

_MAX_VALUES = 100  # of a column that gives a line for each
# Screenshots before the round in its sample; a column of that name takes precedence.
_NUM_IMAGES = "num_images"
SCREENSHOTS = {"expected": "a batch with screenshots", "found": "a batch without them"}
# A frame has no two columns of one name.
_TAKEN = {*SUMMARY.dtypes}


def values_from_batch(batch: Batch, name: str) -> Array:
    """Return a column of rounds, samples, or the sample frame, one value per round.

    A batch with screenshots also has `num_images`.
    """
    columns = batch.columns
    if name in columns.extra_names and name not in _TAKEN:
        return columns.at_rounds(columns.of_file(name)).filled
    samples = sample_frame(batch)
    counted = [_NUM_IMAGES] if batch.images is not None else []
    _check(name, dict.fromkeys([*columns.extra_names, *samples, *counted]))
    if name not in samples:
        return images_before_rounds(batch, name).filled
    return samples[name].to_numpy()[columns.owner]


def images_before_rounds(batch: Batch, key: str) -> Column:
    """Return the number of images before each round; an error names the key."""
    column = batch.columns.made(_NUM_IMAGES)
    if column is not None:
        return column
    if batch.images is None:
        raise lacking_error(key, **SCREENSHOTS)
    shots = [shot for row in batch.images for shot in row]
    count = sum(shot.position is None and shot.round is None for shot in shots)
    expected = "screenshots whose `round` is known"
    raise lacking_error(key, expected, f"{count} of {len(shots)} without it")


def lacking_error(key: str, expected: str, found: str) -> FrameError:
    """Build the error of a batch that lacks what counting something needs."""
    advice = "Count something else."
    return FrameError.build(key=key, expected=expected, found=found, advice=advice)


def _check(name: str, known: Iterable[object]) -> None:
    offered = [str(column) for column in known if column not in _TAKEN]
    advice = "Name a column of samples or of rounds."
    require_one_of(name, offered, key="by", advice=advice)


@dataclass(frozen=True, kw_only=True)
class Split:
    """A division of tokens, rounds or samples into parts.

    Attributes
    ----------
    name: The column of a result that names the part.
    values: The names of the parts, in order.
    codes: ndarray of int, shape (num_rows,). The part of each row.
    """

    name: str
    values: Array
    codes: Array

    @classmethod
    def of(cls, name: str, column: Array) -> Split:
        """Divide rows by the values of a column."""
        codes, values = number_values(name, column)
        if len(values) > _MAX_VALUES:
            raise unfit_column(name, f"at most {_MAX_VALUES} values", f"{len(values)}")
        return cls(name=name, values=values, codes=codes)

    def insert_into(self, frame: pd.DataFrame, parts: Array) -> None:
        """Insert a first column with the part of each row into a result."""
        if self.name in frame:
            raise FrameError.build(
                key="by",
                expected=f"a column that is called none of {frame.columns.tolist()}",
                found=repr(self.name),
                advice="Give the column another name.",
            )
        frame.insert(0, self.name, self.values[parts])


def split_by(data: Measured, by: str) -> Split:
    """Divide tokens by a column of samples, rounds or tokens."""
    if isinstance(data.data, pd.DataFrame):
        _check(by, data.data)
        return Split.of(by, data.data[by].to_numpy())
    of_tokens = data.data.columns.tokens
    if by in of_tokens and by not in _TAKEN:
        return Split.of(by, of_tokens[by].filled)
    split = Split.of(by, values_from_batch(data.data, by))
    num_tokens = data.data.rounds.num_tokens.cpu().numpy()
    return replace(split, codes=np.repeat(split.codes, num_tokens))


def split_first(tokens: pd.DataFrame) -> Split:
    """Divide tokens into those of the first round and those of later rounds."""
    is_later = tokens["round"].to_numpy() > 0
    return Split(name="is_later", values=np.array([False, True]), codes=is_later)


def split_rounds(tokens: pd.DataFrame) -> Split:
    """Divide tokens into those of rounds 0, 1, 2 to 3, 4 to 7, ..."""
    codes = round_group(tokens["round"].to_numpy())
    names = [group_label(group) for group in range(int(codes.max(initial=-1)) + 1)]
    return Split(name="rounds", values=np.array(names, dtype=object), codes=codes)


def round_group(rounds: Array) -> Array:
    """Put rounds into groups that double in size: 0, 1, 2 to 3, 4 to 7, ...

    Examples
    --------
    >>> round_group(np.array([0, 1, 2, 3, 4, 7, 8]))
    array([0, 1, 2, 2, 3, 3, 4])
    """
    exponents: Array = np.frexp(np.asarray(rounds, dtype=np.float64))[1]
    return exponents.astype(np.int64)


def group_ends(group: Any) -> tuple[Any, Any]:  # noqa: ANN401 an array or a number
    """Return the first and the last round of a group, or of an array of groups.

    Examples
    --------
    >>> group_ends(3)
    (4, 7)
    """
    return (1 << group) >> 1, (1 << group) - 1


def group_label(group: int) -> str:
    """Name a group of rounds.

    Examples
    --------
    >>> [group_label(group) for group in range(4)]
    ['0', '1', '2 to 3', '4 to 7']
    """
    return range_label(*group_ends(group))


def range_label(first: int, last: int) -> str:
    """Name the numbers from the first to the last."""
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def split_rounds_by(data: Measured, by: str) -> Split:
    """Divide the rounds of a batch or a token frame by a column."""
    split, num = split_by(data, by), data.rounds["num_tokens"].to_numpy()
    begins = np.cumsum(num) - num
    highest, lowest = (
        extreme.reduceat(split.codes, begins) for extreme in (np.maximum, np.minimum)
    )
    if (highest != lowest).any():
        expected = "one value for all tokens of a round"
        raise unfit_column(by, expected, "several values")
    return replace(split, codes=highest)

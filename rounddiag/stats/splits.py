"""Parts that rows are divided into: by their rounds, or by a column."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.errors import FrameError
from rounddiag.stats.by import check_few, numbered, tokens_by, values_of_batch

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Split:
    """Which part each token, round or sample is of.

    Attributes
    ----------
    name : str
        The column of a result that says the part.
    values : ndarray
        What the parts are called, in order.
    codes : ndarray of int, shape (num_rows,)
        Which of them each row is of.
    """

    name: str
    values: Array
    codes: Array

    @classmethod
    def of(cls, name: str, column: Array) -> Split:
        """Divide rows by the values of a column.

        Raises
        ------
        FrameError
            If they cannot be compared, or are more than 100.
        """
        codes, values = numbered(name, column)
        check_few(name, values)
        return cls(name=name, values=values, codes=codes)

    def named(self, code: int) -> dict[str, Any]:
        """Return what a part is called, under the name of the column."""
        return {self.name: self.values[code]}

    def tell(self, found: pd.DataFrame, parts: Array, place: int = 0) -> None:
        """Say of each row of a result which part it is of.

        Raises
        ------
        FrameError
            If the result has a column of that name.
        """
        if self.name in found:
            raise FrameError.build(
                key="by",
                expected=f"a column that is called none of {found.columns.tolist()}",
                found=repr(self.name),
                advice="Give the column another name.",
            )
        found.insert(place, self.name, self.values[parts])


def split_by(data: Batch | pd.DataFrame, tokens: pd.DataFrame, by: str) -> Split:
    """Divide tokens by a column of samples or rounds.

    Parameters
    ----------
    data : Batch or DataFrame
        What the tokens are of.
    tokens : DataFrame
        All of them.
    by : str

    Raises
    ------
    FrameError
        If there is no such column, or it has more than 100 values.
    """
    if not isinstance(data, Batch):
        return Split.of(by, tokens_by(tokens, by))
    split = Split.of(by, values_of_batch(data, by))
    num_tokens = data.rounds.num_tokens.cpu().numpy()
    return replace(split, codes=np.repeat(split.codes, num_tokens))


def split_first(tokens: pd.DataFrame) -> Split:
    """Divide tokens into those of first rounds and those of later ones."""
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
    """Return the first and the last round of a group, or of each of many.

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
    first, last = group_ends(group)
    return f"{first}" if first == last else f"{first} to {last}"

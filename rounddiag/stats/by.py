"""What `by=` divides the rounds of a summary by: one value a round of a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.core import sample_frame
from rounddiag.core.open_columns import open_names, open_values
from rounddiag.errors import FrameError
from rounddiag.schema import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]

MAX_VALUES = 100


def values_of_batch(batch: Batch, name: str) -> Array:
    """Return a column of rounds, of samples, or of the sample frame, by round.

    Raises
    ------
    FrameError
        If there is no such column.
    """
    opened = open_names(batch)
    if name in opened:
        return open_values(batch, name)
    samples = sample_frame(batch)
    _check(name, [*opened, *(known for known in samples if known not in opened)])
    of_sample: Array = samples[name].to_numpy()
    found: Array = of_sample[batch.rounds.sample.cpu().numpy()]
    return found


def values_of_frame(tokens: pd.DataFrame, begins: Array, name: str) -> Array:
    """Return a column of a token frame, by round; `begins` is where each begins.

    Raises
    ------
    FrameError
        If there is no such column, or it has several values in a round.
    """
    _check(name, tokens)
    codes, values = _coded(name, tokens[name].to_numpy())
    highest, lowest = (
        extreme.reduceat(codes, begins) for extreme in (np.maximum, np.minimum)
    )
    if (highest != lowest).any():
        raise _no_split(name, "one value for all tokens of a round", "several values")
    return values[highest]


def coded(name: str, values: Array) -> tuple[Array, Array]:
    """Give each value the number that it has among all in their order.

    Returns
    -------
    codes : ndarray of int
        Which value stands at each place.
    values : ndarray
        Ascending, without repetition; what is missing is a value too, the last one.

    Raises
    ------
    FrameError
        If there are more than 100, or they cannot be compared.

    Examples
    --------
    >>> coded("rank", np.array([3, 1, 3]))
    (array([1, 0, 1]), array([1, 3]))
    """
    codes, found = _coded(name, values)
    if len(found) > MAX_VALUES:
        raise _no_split(name, f"at most {MAX_VALUES} values", f"{len(found)} values")
    return codes, found


def _coded(name: str, values: Array) -> tuple[Array, Array]:
    try:
        return pd.factorize(values, sort=True, use_na_sentinel=False)
    except TypeError:
        kind = next((type(value).__name__ for value in values), "nothing")
        raise _no_split(name, "numbers or texts", f"values as {kind}") from None


def _check(name: str, known: Iterable[object]) -> None:
    taken = {column.name for column in SUMMARY.columns}
    offered = [str(column) for column in known if column not in taken]
    if name not in offered:
        raise FrameError.build(
            key="by",
            expected=f"one of {offered}",
            found=repr(name),
            advice="Name a column of samples or of rounds.",
        )


def _no_split(name: str, expected: str, found: str) -> FrameError:
    return FrameError.build(
        key="by",
        expected=f"a column that has {expected}",
        found=f"{name!r} with {found}",
        advice="Put values into bins in a column of your own, and name that one.",
    )

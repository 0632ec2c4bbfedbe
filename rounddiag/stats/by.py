"""What `by=` divides the rounds of a summary by: one value a round of a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.core import sample_frame
from rounddiag.core.open_columns import open_names, open_values
from rounddiag.errors import FrameError
from rounddiag.schema import SUMMARY
from rounddiag.stats.places import num_seen

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]

MAX_VALUES = 100
# Screenshots that a round's sample had seen by then; a column of that name goes first.
_NUM_IMAGES = "num_images"
# A frame has no two columns of one name.
_TAKEN = {column.name for column in SUMMARY.columns}


def values_of_batch(batch: Batch, name: str) -> Array:
    """Return a column of rounds, of samples, or of the sample frame, by round.

    `num_images` is known of a batch with screenshots too.

    Raises
    ------
    FrameError
        If there is no such column.
    """
    opened = open_names(batch)
    if name in opened and name not in _TAKEN:
        return open_values(batch, name)
    samples = sample_frame(batch)
    counted = [_NUM_IMAGES] if batch.images is not None else []
    _check(name, dict.fromkeys([*opened, *samples, *counted]))
    if name not in samples:
        return num_seen(batch, _keys(batch), by=name)
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
    codes, values = numbered(name, tokens[name].to_numpy())
    highest, lowest = (
        extreme.reduceat(codes, begins) for extreme in (np.maximum, np.minimum)
    )
    if (highest != lowest).any():
        raise _unfit(name, "one value for all tokens of a round", "several values")
    return values[highest]


def tokens_by(tokens: pd.DataFrame, name: str) -> Array:
    """Return a column of a token frame.

    Raises
    ------
    FrameError
        If there is no such column.
    """
    _check(name, tokens)
    column: Array = tokens[name].to_numpy()
    return column


def numbered(name: str, values: Array) -> tuple[Array, Array]:
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
        If they cannot be compared.

    Examples
    --------
    >>> numbered("rank", np.array([3, 1, 3]))
    (array([1, 0, 1]), array([1, 3]))
    """
    try:
        return pd.factorize(values, sort=True, use_na_sentinel=False)
    except (TypeError, ValueError):
        kind = type(values[0]).__name__
        raise _unfit(name, "numbers or texts", f"values as {kind}") from None


def check_few(name: str, values: Array) -> None:
    """Raise a FrameError for more than 100 values."""
    if len(values) > MAX_VALUES:
        raise _unfit(name, f"at most {MAX_VALUES} values", f"{len(values)}")


def _keys(batch: Batch) -> dict[str, Array]:
    """Return the sample and the index of each round."""
    rounds = batch.rounds
    return {"sample": rounds.sample.cpu().numpy(), "round": rounds.round.cpu().numpy()}


def _check(name: str, known: Iterable[object]) -> None:
    offered = [str(column) for column in known if column not in _TAKEN]
    if name not in offered:
        raise FrameError.build(
            key="by",
            expected=f"one of {offered}",
            found=repr(name),
            advice="Name a column of samples or of rounds.",
        )


def _unfit(name: str, expected: str, found: str) -> FrameError:
    return FrameError.build(
        key=name,
        expected=f"a column that has {expected}",
        found=found,
        advice="Put values into bins in a column of your own, and name that one.",
    )

"""Exact quantiles of each round, without a sort."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    Array = np.ndarray[Any, Any]


def quantiles(values: Array, probabilities: Sequence[float]) -> list[float]:
    """Give exact quantiles, interpolated between neighbours as numpy does.

    Parameters
    ----------
    values : ndarray of float, shape (n,)
        Left partly ordered.
    probabilities : sequence of float, ascending

    Returns
    -------
    list of float
        NaN where there are no values.

    Examples
    --------
    >>> import numpy as np
    >>> quantiles(np.array([4.0, 1.0, 3.0, 2.0]), [0.5, 0.9])
    [2.5, 3.7]
    """
    if len(values) == 0:
        return [float("nan")] * len(probabilities)
    done = []
    rest, skipped = values, 0
    for probability in probabilities:
        place = probability * (len(values) - 1)
        low = int(place)
        # One place at a time: numpy selects several at once many times slower.
        rest.partition(low - skipped)
        rest, skipped = rest[low - skipped :], low
        below = float(rest[0])
        above = float(rest[1:].min()) if low < place else below
        # Of infinity and itself the difference is NaN.
        rise = (above - below) * (place - low) if below < above else 0
        done.append(below + rise)
    return done

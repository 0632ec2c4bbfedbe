"""Fewer points for a long line, with what stands out kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, Any]

# With so many the JSON of a trajectory stays under 500 kB, and two tokens share a pixel
# of the widest figure.
_MAX_TOKENS = 4_000
# Two or three tokens are kept of each, and some where rounds begin.
_STRETCHES = 1_300


def thinned(tokens: pd.DataFrame) -> Array:
    """Choose which rows of a long trajectory are drawn.

    Up to 4,000 tokens all are. Above, the trajectory is divided into 1,300 stretches
    and the tokens with the highest, the lowest and a non-finite diff of each are kept,
    with the first and the last token of every round.

    Parameters
    ----------
    tokens : DataFrame
        With the columns round and diff, in order of position.

    Returns
    -------
    array of int
        Indices of rows, ascending.
    """
    if len(tokens) <= _MAX_TOKENS:
        return np.arange(len(tokens))
    diff = tokens["diff"].to_numpy()
    undefined = ~np.isfinite(diff)
    stretch = np.arange(len(diff)) * _STRETCHES // len(diff)
    last = np.flatnonzero(np.diff(stretch, append=_STRETCHES))
    changes = np.flatnonzero(np.diff(tokens["round"])) + 1
    chosen = [
        np.lexsort((np.where(undefined, -np.inf, diff), stretch))[last],
        np.lexsort((np.where(undefined, -np.inf, -diff), stretch))[last],
        np.flatnonzero(undefined)[_firsts(stretch[undefined])],
        np.array([0, *changes, *(changes - 1), len(diff) - 1]),
    ]
    return np.unique(np.concatenate(chosen))


def _firsts(ascending: Array) -> Array:
    """Return where each value is first found."""
    return np.unique(ascending, return_index=True)[1]

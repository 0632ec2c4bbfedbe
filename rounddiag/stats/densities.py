"""Millions of tokens as counts in two dimensions: what an image can show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

# Around points, as a share of the distance between the outermost.
_ROOM = 0.05
# Values beyond the ends by less than this share of a scale are rounding.
_SLACK = 1e-3


@dataclass(frozen=True, kw_only=True)
class Bins:
    """Bins of equal width between two ends.

    Attributes
    ----------
    low, high : float
    num : int
    """

    low: float
    high: float
    num: int

    @classmethod
    def around(cls, *values: Array, num: int) -> Bins:
        """Reach from the lowest to the highest finite value, and a little beyond.

        Examples
        --------
        >>> Bins.around(np.array([0.0, 1.0]), np.array([2.0, np.nan]), num=100)
        Bins(low=-0.1, high=2.1, num=100)
        """
        together = np.concatenate(values)
        known = together[np.isfinite(together)]
        low, high = float(known.min()), float(known.max())
        room = _ROOM * (high - low) or _ROOM
        return cls(low=low - room, high=high + room, num=num)

    @property
    def centres(self) -> Array:
        """Middle of each bin.

        Examples
        --------
        >>> Bins(low=0, high=1, num=2).centres
        array([0.25, 0.75])
        """
        width = (self.high - self.low) / self.num
        centres: Array = self.low + width * (np.arange(self.num) + 0.5)
        return centres

    def place(self, values: Array) -> Array:
        """Return each value's bin; that at the end for what lies beyond.

        Examples
        --------
        >>> Bins(low=0, high=1, num=2).place(np.array([0.1, 0.5, 7.0, -1.0]))
        array([0, 1, 1, 0], dtype=int32)
        """
        kept = np.clip(values, self.low, self.high)
        steps = (kept - self.low) * (self.num / (self.high - self.low))
        return np.minimum(steps.astype(np.int32), self.num - 1)

    def is_beyond(self, values: Array) -> Array:
        """Tell which values lie beyond the ends, by more than rounding.

        Examples
        --------
        >>> Bins(low=0, high=1, num=2).is_beyond(np.array([1.0, 1.000001, 1.1]))
        array([False, False,  True])
        """
        slack = _SLACK * (self.high - self.low)
        beyond: Array = (values < self.low - slack) | (values > self.high + slack)
        return beyond


def densities(points: pd.DataFrame, x: Bins, y: Bins) -> pd.DataFrame:
    """Count the points of each panel in bins of two dimensions.

    Parameters
    ----------
    points : DataFrame
        With `panel`, counted from 0, `x` and `y`; those that are not finite are left
        out.
    x, y : Bins

    Returns
    -------
    DataFrame
        One row a bin that has points: `panel`, `x_bin`, `y_bin` and `num`; what
        lies beyond the bins is counted in those at their ends.

    Examples
    --------
    >>> frame = pd.DataFrame({"panel": 0, "x": [0.1, 0.1], "y": [0.9, 0.9]})
    >>> ends = Bins(low=0, high=1, num=2)
    >>> densities(frame, ends, ends)
       panel  x_bin  y_bin  num
    0      0      0      1    2
    """
    kept = _finite(points)
    panel = kept["panel"].to_numpy()
    flat = panel * np.int32(y.num)
    flat += y.place(kept["y"].to_numpy())
    flat *= np.int32(x.num)
    flat += x.place(kept["x"].to_numpy())
    num_panels = int(panel.max(initial=0)) + 1
    counts = np.bincount(flat, minlength=num_panels * y.num * x.num)
    panel, y_bin, x_bin = np.nonzero(counts.reshape(num_panels, y.num, x.num))
    return pd.DataFrame(
        {
            "panel": panel,
            "x_bin": x_bin,
            "y_bin": y_bin,
            "num": counts[counts > 0],
        }
    )


def num_beyond(points: pd.DataFrame, x: Bins, y: Bins) -> int:
    """Count the points that `densities` puts into bins that they are not in.

    Examples
    --------
    >>> frame = pd.DataFrame({"x": [0.1, 3.0, 3.0], "y": [0.9, 0.9, np.inf]})
    >>> num_beyond(frame, *[Bins(low=0, high=1, num=2)] * 2)
    1
    """
    kept = _finite(points)
    beyond = x.is_beyond(kept["x"].to_numpy()) | y.is_beyond(kept["y"].to_numpy())
    return int(beyond.sum())


def _finite(points: pd.DataFrame) -> pd.DataFrame:
    finite = np.isfinite(points["x"].to_numpy()) & np.isfinite(points["y"].to_numpy())
    return points if finite.all() else points[finite]

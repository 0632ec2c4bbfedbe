"""Agreement of both engines on the same tokens: points, densities, correlation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from rounddiag._typing import Array

# Values beyond the ends by less than this share of the range are rounding.
_SLACK = 1e-3


@dataclass(frozen=True, kw_only=True)
class Bins:
    """Bins of equal width between two ends."""

    low: float
    high: float
    num: int

    @property
    def centres(self) -> Array:
        """Middle of each bin.

        Examples
        --------
        >>> Bins(low=0, high=1, num=2).centres
        array([0.25, 0.75])
        """
        width = (self.high - self.low) / self.num
        return self.low + width * (np.arange(self.num) + 0.5)

    def place(self, values: Array) -> Array:
        """Return each value's bin; values beyond the ends are in the end bins.

        Examples
        --------
        >>> Bins(low=0, high=1, num=2).place(np.array([0.1, 0.5, 7.0, -1.0]))
        array([0, 1, 1, 0], dtype=int32)
        """
        inside = np.clip(values, self.low, self.high)
        steps = (inside - self.low) * (self.num / (self.high - self.low))
        return np.minimum(steps.astype(np.int32), self.num - 1)

    def is_beyond(self, values: Array) -> Array:
        """Return which values are beyond the ends, by more than rounding.

        Examples
        --------
        >>> Bins(low=0, high=1, num=2).is_beyond(np.array([1.0, 1.000001, 1.1]))
        array([False, False,  True])
        """
        slack = _SLACK * (self.high - self.low)
        return (values < self.low - slack) | (values > self.high + slack)


def densities(points: pd.DataFrame, bins: Bins) -> pd.DataFrame:
    """Count the points of each panel in bins of two dimensions."""
    finite = _finite(points)
    panel = finite["panel"].to_numpy()
    flat = panel * np.int32(bins.num)
    flat += bins.place(finite["y"].to_numpy())
    flat *= np.int32(bins.num)
    flat += bins.place(finite["x"].to_numpy())
    shape = int(panel.max(initial=0)) + 1, bins.num, bins.num
    counts = np.bincount(flat, minlength=math.prod(shape))
    panel, y_bin, x_bin = np.nonzero(counts.reshape(shape))
    return pd.DataFrame(
        {"panel": panel, "x_bin": x_bin, "y_bin": y_bin, "num": counts[counts > 0]}
    )


def num_beyond(points: pd.DataFrame, bins: Bins) -> int:
    """Count the points beyond the bins, which `densities` counts in the end bins."""
    finite = _finite(points)
    beyond = [bins.is_beyond(finite[name].to_numpy()) for name in ("x", "y")]
    return int(np.logical_or(*beyond).sum())


def _finite(points: pd.DataFrame) -> pd.DataFrame:
    finite = np.isfinite(points["x"].to_numpy()) & np.isfinite(points["y"].to_numpy())
    return points if finite.all() else points[finite]


Axes: TypeAlias = Literal["probability", "log_prob"]

# Lower limit of a log-prob axis: one value of -1e9 must not squeeze the others.
_LOWEST = -20.0


def token_pairs(tokens: pd.DataFrame, axes: Axes) -> pd.DataFrame:
    """Return both engines' values of each token, `x` of the sampler and `y`."""
    names = {"x": "rollout_log_prob", "y": "old_log_prob"}
    pairs = {at: tokens[name].to_numpy(dtype=np.float32) for at, name in names.items()}
    if axes == "probability":
        with np.errstate(over="ignore"):
            pairs = {at: np.exp(values) for at, values in pairs.items()}
    return pd.DataFrame(pairs, copy=False)


def token_bins(pairs: pd.DataFrame, axes: Axes, num: int) -> Bins:
    """Choose the bins of both axes in which to count `token_pairs`.

    Probabilities are from 0 to 1, log-probs from the lowest (-20 at least) to 0.
    """
    if axes == "probability":
        return Bins(low=0.0, high=1.0, num=num)
    lowest = -max(_largest(-pairs["x"]), _largest(-pairs["y"]), -np.log(0.5))
    return Bins(low=max(lowest, _LOWEST), high=0.0, num=num)


def _largest(values: pd.Series[float]) -> float:
    array = values.to_numpy()
    return float(array.max(where=np.isfinite(array), initial=-np.inf))


_AGREEMENT_COLUMNS = ("num", "num_nonfinite", "mean_abs_diff", "pearson")


def agreement(
    rollout: Array, old: Array, panel: Array, *, num_panels: int
) -> pd.DataFrame:
    """Compare both engines' values of the same tokens."""
    rows = []
    for part in (panel == index for index in range(num_panels)):
        finite = part & np.isfinite(rollout) & np.isfinite(old)
        x, y = rollout[finite].astype(np.float64), old[finite].astype(np.float64)
        is_flat = len(x) == 0 or np.ptp(x) == 0 or np.ptp(y) == 0
        row = (
            len(x),
            int(part.sum()) - len(x),
            float(np.abs(y - x).mean()) if len(x) else np.nan,
            np.nan if is_flat else float(np.corrcoef(x, y)[0, 1]),
        )
        rows.append(row)
    return pd.DataFrame(rows, columns=[*_AGREEMENT_COLUMNS])


def farthest(distance: Array, panel: Array, num: int) -> Array:
    """Return the indices of the largest distances of each panel."""
    known = np.isfinite(distance) & (distance > 0)
    indices = []
    for number in range(int(panel.max(initial=0)) + 1):
        index = np.flatnonzero(known & (panel == number))
        if len(index) > num:
            largest = np.argpartition(distance[index], len(index) - num)[-num:]
            index = np.sort(index[largest])
        indices.append(index[np.argsort(-distance[index], kind="stable")])
    return np.concatenate(indices)

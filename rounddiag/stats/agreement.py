"""How well two engines' values agree, in each panel of a figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_COLUMNS = ("num", "num_nonfinite", "mean_abs_diff", "mean_diff", "pearson")


def agreement(
    rollout: Array, old: Array, panel: Array, *, num_panels: int
) -> pd.DataFrame:
    """Compare what both engines say of the same tokens, or samples.

    Parameters
    ----------
    rollout, old : ndarray of float, shape (num,)
        Log-probs, probabilities or log-perplexities.
    panel : ndarray of int, shape (num,)
        Where each is shown, counted from 0.
    num_panels : int

    Returns
    -------
    DataFrame
        One row a panel: `num` (of which both values are finite), `num_nonfinite`,
        `mean_abs_diff` and `mean_diff` of old - rollout, in the unit of the values, and
        `pearson`, which is NaN where one of them does not vary.

    Examples
    --------
    >>> rollout, old = np.array([0.5, 0.25, 1.0]), np.array([0.75, 0.0, 0.5])
    >>> found = agreement(rollout, old, np.array([0, 0, 1]), num_panels=2)
    >>> found[["num", "mean_abs_diff", "mean_diff", "pearson"]]
       num  mean_abs_diff  mean_diff  pearson
    0    2           0.25        0.0      1.0
    1    1           0.50       -0.5      NaN
    """
    parts = [panel == index for index in range(num_panels)]
    rows = [_row(rollout[part], old[part]) for part in parts]
    return pd.DataFrame(rows, columns=[*_COLUMNS])


def farthest(distance: Array, panel: Array, num: int) -> Array:
    """Return where the largest distances of each panel are.

    Parameters
    ----------
    distance : ndarray of float, shape (num_points,)
        None that is 0 or not finite is returned.
    panel : ndarray of int, shape (num_points,)
        Where each is shown, counted from 0.
    num : int
        How many of each panel, at most.

    Returns
    -------
    ndarray of int
        Indices, panel by panel, the largest distance first.

    Examples
    --------
    >>> panel = np.array([0, 0, 1, 1])
    >>> farthest(np.array([1.0, 2.0, 0.0, np.inf]), panel, 5).tolist()
    [1, 0]
    """
    known = np.isfinite(distance) & (distance > 0)
    panels = range(int(panel.max(initial=0)) + 1)
    found = [_largest(distance, known & (panel == index), num) for index in panels]
    return np.concatenate(found)


def _largest(distance: Array, where: Array, num: int) -> Array:
    index = np.flatnonzero(where)
    if len(index) > num:
        kept = np.argpartition(distance[index], len(index) - num)[-num:]
        index = np.sort(index[kept])
    ordered: Array = index[np.argsort(-distance[index], kind="stable")]
    return ordered


def _row(rollout: Array, old: Array) -> dict[str, float]:
    finite = np.isfinite(rollout) & np.isfinite(old)
    x, y = rollout[finite].astype(np.float64), old[finite].astype(np.float64)
    difference = y - x
    found = (
        len(x),
        len(finite) - len(x),
        float(np.abs(difference).mean()) if len(x) else np.nan,
        float(difference.mean()) if len(x) else np.nan,
        _pearson(x, y),
    )
    return dict(zip(_COLUMNS, found, strict=True))


def _pearson(x: Array, y: Array) -> float:
    if len(x) == 0 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    x, y = x - x.mean(), y - y.mean()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))

"""Whether the mismatch of a run goes with the updates since its start, or with the lag.

Staleness goes with the lag. A sampler that weights never reach is further from the
trainer with every update, whatever lag it records.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.special import stdtr

from rounddiag._typing import Array

# Probability by chance of a rank correlation: over the run, and in each half of it, so
# that a single jump is no growth. Means of neighbouring steps are not independent.
_LEVEL, _OF_HALF = 0.001, 0.01
_TINY = 1e-12  # of a correlation of 1
_FEWEST = 8  # steps: a half has a correlation, of two numbers each without the third
_NOT_STALE = (
    "staleness would follow the lag. Weights that do not arrive grow apart like this,"
    " and so does a policy with ever rarer tokens: digests of the weights tell"
)


def describe_growth(steps: pd.DataFrame) -> str:
    """Say what the mean |diff| of steps goes with; empty if nothing is sure.

    The figures are rank correlations, each with the other number held constant. They
    are no proof.

    Parameters
    ----------
    steps : DataFrame
        With the columns of `schema.STEPS`.
    """
    ends = steps["weight_version"].str.split(" to ", expand=True)
    version = ends.apply(pd.to_numeric, errors="coerce").mean(axis=1)
    rows = steps.assign(lag=steps["step"] - version)[["step", "lag", "mean_abs_diff"]]
    values = rows[rows["step"] > 0].to_numpy(dtype=np.float64)
    values = values[np.isfinite(values).all(axis=1)]
    if len(values) < _FEWEST or not np.ptp(values[:, 0] - values[:, 1]):
        return ""  # versions that never change, are of no lag
    of_updates, of_lag = _partial_correlations(values)
    halves = [_partial_correlations(half)[0] for half in np.array_split(values, 2)]
    is_growth = _is_sure(of_updates, len(values), _LEVEL) and all(
        _is_sure(half, len(values) // 2, _OF_HALF) for half in halves
    )
    first, last = values[0, 2], values[-1, 2]
    if is_growth and of_updates > of_lag:
        lag = "the recorded lag does not change"
        if np.ptp(values[:, 1]):
            lag = f"{of_lag:.2f} with the recorded lag"
        return (
            f"mean |diff| goes from {first:.2g} to {last:.2g} nat with the updates"
            f" since the start (rank correlation {of_updates:.2f}; {lag}): {_NOT_STALE}"
        )
    if _is_sure(of_lag, len(values), _LEVEL):
        return (
            f"mean |diff| goes with the recorded lag (rank correlation {of_lag:.2f};"
            f" {of_updates:.2f} with the updates since the start), as staleness does"
        )
    return ""


def _partial_correlations(values: Array) -> tuple[float, float]:
    """Return the rank correlations of the third column with the first two.

    Each with the other held constant; a column that does not vary correlates with none.
    """
    ranks = pd.DataFrame(values).rank().to_numpy().T
    with np.errstate(divide="ignore", invalid="ignore"):
        known = np.nan_to_num(np.corrcoef(ranks))
    first, second, both = float(known[0, 2]), float(known[1, 2]), float(known[0, 1])

    def without(own: float, other: float) -> float:
        rest = (1 - other**2) * (1 - both**2)
        return (own - other * both) / float(np.sqrt(rest)) if rest > _TINY else 0.0

    return without(first, second), without(second, first)


def _is_sure(correlation: float, num: int, level: float) -> bool:
    """Return whether unrelated ranks correlate as much less often than the level."""
    freedom = num - 3
    rest = max(1 - correlation**2, _TINY)
    return bool(stdtr(freedom, -correlation * np.sqrt(freedom / rest)) < level)

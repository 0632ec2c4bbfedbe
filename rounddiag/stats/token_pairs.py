"""Where each token is in a plot of one engine against the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import pandas as pd

from rounddiag.core.divergence import diff
from rounddiag.stats.densities import Bins

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

Axes: TypeAlias = Literal["probability", "log_prob", "diff"]

# Up to here a signed log is nearly linear, in nats: about the noise of bfloat16.
_LINEAR = 1e-3
# Log-probs below are as good as impossible; one of -1e9 must not squeeze the others.
_LOWEST = -20.0
# Half the height of a plot of diffs that are all smaller, in nats.
_LEAST = 0.1
# So that the outermost points are not on the edge.
_ROOM = 1.05


def signed_log(values: Array) -> Array:
    """Compress magnitudes and keep signs: linear near zero, a logarithm beyond.

    The inverse hyperbolic sine of the value over 0.001.

    Examples
    --------
    >>> signed_log(np.array([-1.0, 0.0, 0.001, 1.0])).round(2)
    array([-7.6 ,  0.  ,  0.88,  7.6 ])
    """
    compressed: Array = np.arcsinh(values / np.float32(_LINEAR))
    return compressed


def token_pairs(tokens: pd.DataFrame, axes: Axes) -> pd.DataFrame:
    """Return what both engines say of each token, and where that is in a plot.

    Parameters
    ----------
    tokens : DataFrame
        With `rollout_log_prob` and `old_log_prob`.
    axes : {"probability", "log_prob", "diff"}

    Returns
    -------
    DataFrame
        In the order of the tokens: `rollout`, `old` (probabilities, or else
        log-probs), and `x`, `y`: the same two, or for "diff" the rollout probability
        and `signed_log` of old - rollout log-prob.

    Examples
    --------
    >>> frame = pd.DataFrame({"rollout_log_prob": [0, -1.0], "old_log_prob": [0, -2.0]})
    >>> token_pairs(frame, "probability")[["x", "y"]].round(2)
          x     y
    0  1.00  1.00
    1  0.37  0.14
    """
    names = ("rollout_log_prob", "old_log_prob")
    rollout, old = (tokens[name].to_numpy(dtype=np.float32) for name in names)
    with np.errstate(over="ignore", invalid="ignore"):
        if axes == "diff":
            x, y = np.exp(rollout), signed_log(diff(old, rollout))
        elif axes == "probability":
            x, y = rollout, old = np.exp(rollout), np.exp(old)
        else:
            x, y = rollout, old
    columns = {"rollout": rollout, "old": old, "x": x, "y": y}
    return pd.DataFrame(columns, copy=False)


def token_bins(pairs: pd.DataFrame, axes: Axes, num: int) -> tuple[Bins, Bins]:
    """Choose the bins, an even number, in which `token_pairs` are counted.

    Probabilities are from 0 to 1, log-probs from the lowest (-20 at least) to 0, and
    signed logs as far below zero as above.

    Examples
    --------
    >>> frame = pd.DataFrame({"x": [-1.0, -50.0], "y": [-2.0, -3.0]})
    >>> token_bins(frame, "log_prob", 100)[0]
    Bins(low=-20.0, high=0.0, num=100)
    """
    unit = Bins(low=0.0, high=1.0, num=num)
    if axes == "probability":
        return unit, unit
    if axes == "diff":
        least = float(signed_log(np.array(_LEAST)))
        reach = _ROOM * max(_largest(pairs["y"].abs()), least)
        # An odd number of bins: diffs of exactly zero are in the middle of one.
        return unit, Bins(low=-reach, high=reach, num=num + 1)
    lowest = -max(_largest(-pairs["x"]), _largest(-pairs["y"]), -np.log(0.5))
    log_prob = Bins(low=max(lowest, _LOWEST), high=0.0, num=num)
    return log_prob, log_prob


def _largest(values: pd.Series[float]) -> float:
    array = values.to_numpy()
    return float(array.max(where=np.isfinite(array), initial=-np.inf))

"""Residuals on the scale of logits, their scale, and what noise alone would leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from rounddiag._typing import Array

FREEDOM = 3.0  # of Student's t: engines have tails
LEAST_SPREAD = 0.02  # below it the log-prob's own rounding is larger
_ROUNDS = 30
_CLOSE = 1e-4  # relative change at which the scale is found
_TINY = 1e-7


def scale_residuals(residuals: Array, spread: Array) -> Array:
    """Divide residuals of log-probs by how much noise of the logits moves them."""
    found: Array = residuals / np.maximum(spread, LEAST_SPREAD)
    return found


def fit_scale(values: Array, least: float = _TINY) -> float:
    """Fit the scale of Student's t with 3 degrees of freedom around 0."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return least
    square = finite**2
    # The median of |t| with 3 degrees of freedom is 0.765 scales.
    scale = max(float(np.sqrt(np.median(square))) / 0.765, least)
    for _ in range(_ROUNDS):
        weight = (FREEDOM + 1) / (FREEDOM + square / scale**2)
        # Over the sum of the weights, not over their number: the same end, in fewer
        # rounds (Kent, Tyler and Vardi 1994).
        mean = float(weight @ square) / float(weight.sum())
        before, scale = scale, max(mean**0.5, least)
        if abs(scale - before) < _CLOSE * scale:
            break
    return scale


def log_density(values: Array, scale: float) -> Array:
    """Return the log-density of Student's t, up to a constant.

    Examples
    --------
    >>> log_density(np.array([0.0]), 1.0).tolist()
    [-0.0]
    """
    found: Array = -(FREEDOM + 1) / 2 * np.log1p(
        (values / scale) ** 2 / FREEDOM
    ) - np.log(scale)
    return found

"""Residuals on the scale of logits, their scale, and what noise alone would leave."""

from __future__ import annotations

import numpy as np

from rounddiag._typing import Array

FREEDOM = 3.0  # of Student's t: engines have tails
LEAST_SPREAD = 0.02  # below it the log-prob's own rounding is larger
_ROUNDS = 30
_LONGEST = 2.0  # step of the logarithm
_CLOSE = 1e-4  # relative change at which the scale is found
_TINY = 1e-7


def scale_residuals(residuals: Array, spread: Array) -> Array:
    """Divide residuals of log-probs by how much noise of the logits moves them."""
    found: Array = residuals / np.maximum(spread, LEAST_SPREAD)
    return found


def fit_scale(values: Array, least: float = _TINY) -> Array:
    """Fit the scale of Student's t with 3 degrees of freedom around 0, row by row.

    The maximum of the likelihood is where the mean of 4 x^2 / (3 scale^2 + x^2) is 1:
    Newton's method on the logarithm of scale^2. Values that are not finite are left
    out.

    Examples
    --------
    >>> float(fit_scale(np.array([2.0, -2.0, np.nan])))
    2.0
    """
    known = np.isfinite(values)
    if not known.any():
        return np.full(values.shape[:-1], least)
    size = np.abs(np.where(known, values, 0.0))
    number = np.maximum(known.sum(-1), 1)
    middle = np.expand_dims(values.shape[-1] - (number + 1) // 2, -1)
    start = np.take_along_axis(np.sort(size, -1), middle, -1)[..., 0]
    log = 2 * np.log(np.maximum(start, least))
    square = size**2
    for _ in range(_ROUNDS):
        total = FREEDOM * np.exp(log)[..., None] + square
        part = square / total
        over = (FREEDOM + 1) * part.sum(-1) / number - 1
        slope = (FREEDOM + 1) * (part * (1 - part)).sum(-1) / number
        step = np.clip(over / np.maximum(slope, _TINY), -_LONGEST, _LONGEST)
        before, log = log, np.maximum(log + step, 2 * np.log(least))
        if np.abs(log - before).max() < 2 * _CLOSE:
            break
    found: Array = np.exp(log / 2)
    return found


def log_density(values: Array, scale: Array) -> Array:
    """Return the log-density of Student's t, up to a constant.

    Examples
    --------
    >>> log_density(np.array([0.0]), np.array(1.0)).tolist()
    [-0.0]
    """
    scale = np.expand_dims(scale, -1)
    tail = (FREEDOM + 1) / 2 * np.log1p((values / scale) ** 2 / FREEDOM)
    found: Array = -tail - np.log(scale)
    return found

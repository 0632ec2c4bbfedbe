"""How strong a fault is, measured on the tokens that it touches."""

from __future__ import annotations

import numpy as np

from tests.faults.rows import Array, Rows

BANDS = {"just_visible": (1.5, 3.0), "clear": (5.0, 20.0), "gross": (20.0, np.inf)}
"""Mean |diff| of the touched tokens, as multiples of its healthy value."""


def is_weaker(severity: str, other: str) -> bool:
    """Tell whether a severity is below another."""
    return list(BANDS).index(severity) < list(BANDS).index(other)


def ratio(healthy: Rows, broken: Rows) -> float:
    """Return mean |diff| of the touched tokens over its healthy value."""
    where = touched(healthy, broken)
    return broken.mean_abs_diff(where) / max(healthy.mean_abs_diff(where), 1e-9)


def touched(healthy: Rows, broken: Rows) -> list[Array]:
    """Mark the generated tokens whose old log-prob a fault changed."""
    return [
        (mask > 0) & (np.abs(after - before) > 1e-6)
        for mask, before, after in zip(
            broken.mask, healthy.old, broken.old, strict=True
        )
    ]


def severity_of(value: float) -> str | None:
    """Return the severity whose band holds a measured ratio; None between bands."""
    for name, (low, high) in BANDS.items():
        if low <= value < high:
            return name
    return None

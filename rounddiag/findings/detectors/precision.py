"""`low_precision`: log-probs lie on the grid of a short dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag._typing import Array
    from rounddiag.findings.view import View

# Share of values on the grid. By chance, one float32 value in 2**13 or fewer is.
MIN_SHARE = 0.9
MIN_TOKENS = 30
# Low bits of float32 that are 0 for each dtype.
_LOW_BITS = {"bfloat16": 16, "float16": 13}
_STEPS = tuple(2.0**-k for k in range(1, 9))


@register("low_precision", stage="fit")
def low_precision(view: View) -> Iterator[Evidence]:
    """Find a column whose values all lie on a coarse grid."""
    chosen = view.uncertain
    if chosen.sum() < MIN_TOKENS:
        return
    for values, name in ((view.r, view.b), (view.o, view.a)):
        grid = find_grid(values[chosen])
        if grid is None:
            continue
        text, step = grid
        yield Evidence(
            score=0.9,
            tokens=np.ones(len(view), dtype=bool),
            measures=(
                Measure(name="share on the grid", value=1.0, unit="share"),
                Measure(name="typical step", value=step, unit="nat"),
                Measure(
                    name="median |diff|", value=float(np.median(view.abs)), unit="nat"
                ),
            ),
            explanation=f"`{name}` log-probs lie on the grid of {text}.",
            next_step=(
                "Compute log-softmax, and store log-probs, in float32 on both sides; "
                "set lm_head to float32 to see what is left."
            ),
        )


def find_grid(values: Array) -> tuple[str, float] | None:
    """Return the grid that values lie on, and its step near them, or None.

    Examples
    --------
    >>> find_grid(np.array([-0.5, -1.25, -3.0]))
    ('multiples of 0.25', 0.25)
    >>> find_grid(np.array([-0.1, -0.2, -0.3])) is None
    True
    """
    for step in _STEPS:
        if (values == np.round(values / step) * step).mean() > MIN_SHARE:
            return f"multiples of {step:g}", step
    bits = values.astype(np.float32).view(np.uint32)
    for name, low in _LOW_BITS.items():
        if (bits & ((1 << low) - 1) == 0).mean() > MIN_SHARE:
            size = float(np.median(np.abs(values)))
            return name, size * 2.0 ** -(23 - low)
    return None

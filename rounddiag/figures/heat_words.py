"""What a heatmap says in words under its title."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.checks.words import count
from rounddiag.figures.labels import CROSS

if TYPE_CHECKING:
    from rounddiag.figures.heat import Heat

_POOLED = {
    "max": "its color is the largest value of theirs",
    "mean": "its color is the mean over their tokens",
}

_HATCHED = ("the sample has no such round", "no sample of the row has the round")


def explanation(heat: Heat) -> list[str]:
    """Explain the marks and what a row stands for, a line each."""
    lines = []
    if heat.is_pooled:
        num = count(len(heat.rows.samples), "sample")
        lines.append(f"{num}: each row is {heat.rows.pool} neighbours,")
        lines.append(_POOLED[heat.pooling])
    if heat.is_difference:
        lines.append("blue: more than in the first batch, orange: less")
    if not heat.grid.there.all():
        missing = "not in both" if heat.is_difference else _HATCHED[heat.is_pooled]
        lines.append(f"▨ {missing}")
    zeros = int((heat.shown == 0).sum())
    if zeros:
        where = "in the middle" if heat.scale.low < 0 else "at the low end"
        lines.append(f"{count(zeros, 'cell')} exactly 0, shown {where}")
    undefined = int(heat.grid.undefined("shown").sum())
    if undefined:
        lines.append(f"{CROSS} {count(undefined, 'cell')} without a finite value")
    return lines


def nothing(heat: Heat) -> str:
    """Say why there are no cells."""
    if heat.is_difference:
        return "no round of a sample in both batches"
    return "no generated tokens, so no rounds"

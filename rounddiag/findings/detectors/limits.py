"""`truncated_round`: the end of samples that reach the length limit is off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.pattern import strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.pattern_candidates import Pattern
    from rounddiag.findings.view import View


@register("truncated_round")
def truncated_round(view: View) -> Iterator[Evidence]:
    """Find the last tokens of the longest samples."""
    for pattern in strong_patterns(view, "limit"):
        yield cut_off(view, pattern)


def cut_off(view: View, pattern: Pattern) -> Evidence:
    """Return the evidence that the ends of the longest samples are off."""
    tokens = pattern.tokens
    samples = np.unique(view.sample[tokens])
    return Evidence(
        cause="truncated_round",
        score=float(min(0.6 + abs(pattern.gap) / 5, 0.9)),
        gain=pattern.worth,
        tokens=tokens,
        where={"samples": samples},
        measures=(
            Measure(name="ratio, of tokens as likely", value=pattern.ratio),
            Measure(name="samples at the limit", value=len(samples)),
        ),
        explanation=(
            f"|diff| is {pattern.ratio:.3g} times as large in the last tokens of "
            f"{len(samples)} samples that reach the length limit."
        ),
        next_step="Compare how each engine treats the tokens at the length limit.",
    )

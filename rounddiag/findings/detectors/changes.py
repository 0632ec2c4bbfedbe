"""|diff| that changes along a sample: growing, decaying, or from one token on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure, contrast_measures
from rounddiag.findings.pattern import at_limit, strong_patterns
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.pattern_candidates import Pattern
    from rounddiag.findings.view import View

# A step within this many generated tokens is the start of a decay.
FADES = 8


@register("position_ids")
def slopes(view: View) -> Iterator[Evidence]:
    """Find |diff| that grows, or decays, with the decoding step."""
    if view.is_fitted:
        return  # a fitted effect leaves slopes of its own
    for pattern in strong_patterns(view, "slope"):
        rises, follows = pattern.where["rises"], pattern.where["follows"]
        if rises and pattern.where["is_flat"]:
            continue  # begins after the first round: a step
        factor = float(np.exp(abs(pattern.gap)))
        verb = "grows" if rises else "decays"
        yield Evidence(
            score=1.0,
            gain=pattern.worth,
            tokens=np.ones(len(view), dtype=bool),
            where={"follows": follows, "rises": rises},
            measures=(
                Measure(name="ratio over 80 % of the range", value=factor),
                Measure(name="t, clustered by sample", value=pattern.t),
            ),
            explanation=(
                f"|diff| {verb} with the {follows.replace('_', ' ')}, by a factor of "
                f"{factor:.3g} over the middle 80 % of tokens, in all samples."
            ),
        )


@register("mixed_weights")
def steps(view: View) -> Iterator[Evidence]:
    """Find samples that differ from one decoding step on, or up to it."""
    for pattern in strong_patterns(view, "step"):
        place, unit = pattern.where["place"], pattern.where["unit"]
        if at_limit(view, pattern.tokens):
            yield end_evidence(view, pattern)
        elif place > FADES:  # else only the first tokens differ: no switch
            side = "from" if pattern.where["is_after"] else "up to"
            where = f"{side} {place} {unit}, in all samples that get there"
            yield _step(view, pattern, where)
    for pattern in strong_patterns(view, "change"):
        if at_limit(view, pattern.tokens):
            yield end_evidence(view, pattern)
        else:
            num = len(np.asarray(pattern.where["samples"]))
            where = f"in {num} samples, each from a different token on"
            yield _step(view, pattern, where)


def _step(view: View, pattern: Pattern, where: str) -> Evidence:
    tokens = pattern.tokens
    inside, outside = float(view.abs[tokens].mean()), float(view.abs[~tokens].mean())
    return Evidence(
        score=1.0,
        gain=pattern.worth,
        tokens=tokens,
        where=dict(pattern.where),
        measures=contrast_measures(pattern, inside, outside),
        explanation=(
            f"The mean |diff| is {inside:.3g} nat {where} and {outside:.3g} nat "
            f"elsewhere: {pattern.ratio:.3g} times as large for equally likely tokens."
        ),
    )


@register("truncated_round")
def ends(view: View) -> Iterator[Evidence]:
    """Find the last tokens of the longest samples."""
    for pattern in strong_patterns(view, "limit"):
        yield end_evidence(view, pattern)


def end_evidence(view: View, pattern: Pattern) -> Evidence:
    """Return the evidence that the ends of the longest samples are off."""
    tokens = pattern.tokens
    samples = np.unique(view.sample[tokens])
    return Evidence(
        cause="truncated_round",
        score=1.0,
        gain=pattern.worth,
        tokens=tokens,
        where={"samples": samples},
        measures=(
            Measure(name="ratio for equally likely tokens", value=pattern.ratio),
            Measure(name="samples at the limit", value=len(samples)),
        ),
        explanation=(
            f"|diff| is {pattern.ratio:.3g} times as large in the last tokens of "
            f"{len(samples)} samples that reach the length limit."
        ),
    )

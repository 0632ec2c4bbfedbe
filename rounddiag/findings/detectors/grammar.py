"""`structured_output`: the sampler's log-probs are of what a grammar allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.grammar import NEARLY_ALL, find_forced, recorded_grammar
from rounddiag.core.divergence import FACTOR_2
from rounddiag.findings.finding import Evidence
from rounddiag.findings.measure import Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View


def measure_forced(view: View, tokens: Array | None = None) -> tuple[Measure, ...]:
    """Return what shows structured output at some tokens, as numbers, or at all.

    Empty if the batch does not show it, or these tokens differ from the others in that.
    Where none of them is forced, those of the whole batch are counted.
    """
    everywhere = np.ones(len(view), dtype=bool)
    inside = everywhere if tokens is None else tokens
    every = find_forced(view.log_prob_b, view.log_prob_a)
    far = inside & ~every & (view.abs_diff > FACTOR_2)
    below = view.abs_diff[far & (view.diff < 0)].sum()
    size, has_own = view.abs_diff[far].sum(), (every & inside).any()
    if not every.any() or not (size or has_own) or below < NEARLY_ALL * size:
        return ()
    part = inside if has_own else everywhere
    unsure, forced = part & (view.log_prob_a < -FACTOR_2), part & every
    where = "" if has_own else ", in the whole batch"
    others = Measure(
        "part of |diff| of the others that differ by more than a factor of 2 where"
        f" {view.a} is lower",
        float(below / size) if size else 0.0,
    )
    return (
        Measure(
            f"part of tokens less than half likely in {view.a} that are exactly 0 in"
            f" {view.b}{where}",
            float(forced.sum() / unsure.sum()),
        ),
        Measure(
            f"mean {view.a} of these", float(view.log_prob_a[forced].mean()), "nat"
        ),
        *((others,) if size else ()),
    )


def say_forced(view: View) -> str:
    """Return what speaks for structured output as a sentence; empty if nothing does."""
    measures = "; ".join(map(str, measure_forced(view)))
    return f" Structured output leaves this too: {measures}." if measures else ""


@register("structured_output", kind="fact")
def structured_output(view: View) -> Evidence | None:
    """Name a grammar that the batch records, if the log-probs are as it leaves them."""
    name = recorded_grammar(view.batch)
    measures = measure_forced(view) if name else ()
    if not measures:
        return None
    return Evidence(
        tokens=view.uncertain & (view.diff < 0),
        measures=measures,
        shown=f"The batch records `{name}`: {'; '.join(map(str, measures))}.",
        next_step="Mask the trainer's logits with the same grammar, or sample without"
        " it: vLLM's raw log-probs are renormalised over what a grammar allows, too.",
    )

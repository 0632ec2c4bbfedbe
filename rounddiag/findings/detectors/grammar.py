"""`structured_output`: the sampler's log-probs are of what a grammar allows.

vLLM 0.32 masks the logits in its model runner, so that `raw_logprobs` are renormalised
too: a token is at least as likely as without the grammar, and exactly 0 where nothing
else is allowed, however unlikely the model finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.fills import recorded_grammar
from rounddiag.core.divergence import FACTOR_2
from rounddiag.findings.finding import Evidence
from rounddiag.findings.measure import Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from rounddiag.findings.view import View

# Share of tokens that were left alone, with a log-prob of exactly 0. A convention: half
# and twice of it change no answer of `tests.faults.bench`.
MIN_ALONE = 0.02
# Nearly all diffs are negative: the sum of diff is this part of that of |diff|. 0.98
# changes no answer of `tests.faults.bench`; 0.9 calls blank pictures truncated.
NEARLY_ALL = 0.96


def measure_forced(view: View) -> tuple[Measure, ...]:
    """Return how one-sided the diffs are, and how many tokens were forced.

    Empty unless as many tokens as truncation may leave alone have a log-prob of exactly
    0 that the other engine finds less than half likely (no top-p of one half or more
    leaves such a token alone), and nearly all of |diff| of the others is below 0, which
    zeros in place of log-probs do not change.
    """
    others = view.log_prob_b != 0
    size = float(view.abs_diff[others].sum())
    below = -float(np.minimum(view.diff, 0)[others].sum()) / size if size else 0.0
    unsure = view.log_prob_a < -FACTOR_2
    forced = unsure & (view.log_prob_b == 0)
    if below < NEARLY_ALL or forced.sum() < max(MIN_ALONE * view.uncertain.sum(), 1):
        return ()
    return (
        Measure(
            f"part of tokens less than half likely in {view.a} that are exactly 0 in"
            f" {view.b}",
            float(forced.sum() / unsure.sum()),
        ),
        Measure(
            f"mean {view.a} of these", float(view.log_prob_a[forced].mean()), "nat"
        ),
        Measure(f"part of |diff| of the others where {view.a} is lower", below),
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

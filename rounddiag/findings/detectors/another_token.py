"""`another_token`, a candidate: log-probs that may be those of likelier tokens.

A sampler's answer has the log-probs of several tokens at each place. Where the first is
taken, which is the likeliest, in place of the sampled one, sampled tokens below one
half are too likely, and the likely ones are right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr, bdtrc

from rounddiag.checks.contracts import LEVEL
from rounddiag.checks.grammar import NEARLY_ALL, find_forced
from rounddiag.core.divergence import FACTOR_2
from rounddiag.findings.causes import CAUSES, NO_CAUSE
from rounddiag.findings.detectors.truncation import MIN_MISSING
from rounddiag.findings.finding import Evidence
from rounddiag.findings.measure import Measure
from rounddiag.findings.registry import register
from rounddiag.wording import percent, pluralize

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.findings.view import View

_HALF = np.log(0.5)


@register("another_token", kind="fact")
def another_token(view: View) -> Evidence | None:
    """Find tokens that one engine finds unlikely and the other always likelier.

    The probabilities of two tokens add up to 1 at most. Tokens that the first engine
    finds likely must agree as is usual: where a context is lost they do not.
    """
    if view.is_fitted or not len(view):
        return None
    return next(
        (
            evidence
            for engine, given, other in (
                (view.b, view.log_prob_b, view.log_prob_a),
                (view.a, view.log_prob_a, view.log_prob_b),
            )
            if (evidence := _find(view, engine, given, other)) is not None
        ),
        None,
    )


def _find(view: View, engine: str, given: Array, other: Array) -> Evidence | None:
    """Return the tokens of which `engine` gave the log-prob of another token.

    By chance, far tokens are higher in either engine alike, and likely ones as often
    as others.
    """
    gap = given - other
    far = np.abs(gap) > FACTOR_2
    mine = view.samples_with(far)[view.sample]
    likely = mine & view.uncertain & (other >= _HALF)
    num_far, num_above = int(far.sum()), int((gap[far] > 0).sum())
    share = likely.sum() / max((mine & view.uncertain).sum(), 1)
    by_chance = (
        bdtrc(num_above - 1.0, num_far, 0.5) if num_above else 1.0,
        bdtr((far & likely).sum(), num_far, share),
    )
    # A likeliest token that is certain would have been drawn.
    if 2 * max(by_chance) >= LEVEL or find_forced(given, other).any():  # two engines
        return None
    above = num_above / num_far
    fits = float((np.exp(given[far]) + np.exp(other[far]) <= 1).mean())
    rest = float(np.abs(gap[likely]).mean())
    usual = float(view.usual.of_tokens(given[likely]).mean())
    num_values = min(len(np.unique(values[far])) for values in (given, other))
    is_one_value = num_values < far.sum() / 2  # one that fills
    if min(above, fits) < NEARLY_ALL or rest > usual or is_one_value:
        return None
    if abs(gap[likely].mean()) > MIN_MISSING * rest:
        return None  # another temperature, or a truncation, moves likely tokens as well
    tokens = mine & (other < _HALF) & (gap > view.usual.of_tokens(given))
    name = view.a if engine == view.b else view.b
    num, num_samples = int(tokens.sum()), int(view.samples_with(tokens).sum())
    return Evidence(
        cause=NO_CAUSE,
        tokens=tokens,
        measures=(
            Measure("tokens", num, "tokens"),
            Measure("share that is higher", above, "share"),
            Measure("share that adds up to 1 at most", fits, "share"),
            Measure("mean |diff| of likely tokens", rest, "nat"),
        ),
        where={
            "fact": f"{num:,} tokens that `{name}` finds unlikely have a higher"
            f" log-prob in `{engine}`, as of another token, in {num_samples:,} of"
            f" {pluralize(view.num_samples, 'sample')}"
        },
        shown=(
            f"Of {num_far:,} tokens that differ by more than a factor of 2,"
            f" {percent(above)} are likelier in `{engine}`, and at {percent(fits)} both"
            " probabilities add up to 1 at most, as those of two tokens do; tokens that"
            f" `{name}` finds likelier than one half agree to {rest:.2g} nat in"
            " these samples."
        ),
        candidates=("another_token",),
        next_step=CAUSES["another_token"].test,
    )

"""`filled_log_probs`: one exact value stands where a log-prob should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.view import Array, View

# |diff| in nats from which an exact value is far from the other engine's.
FAR = 0.7
MIN_COUNT = 3


@register("filled_log_probs", stage="exact")
def filled_log_probs(view: View) -> Iterator[Evidence]:
    """Find exact values that recur where the other engine is far from them."""
    for values, others, name in (
        (view.r, view.o, view.b),
        (view.o, view.r, view.a),
    ):
        found = _fill(view, values, others, name)
        if found is not None:
            yield found


def _fill(view: View, values: Array, others: Array, name: str) -> Evidence | None:
    far = view.abs > FAR
    if not far.any():
        return None
    known, counts = np.unique(values[far], return_counts=True)
    value = known[counts.argmax()]
    num = int(counts.max())
    if num < MIN_COUNT:
        return None
    tokens = values == value
    # A value of a coarse grid recurs too, but where the other engine is near.
    if np.median(view.abs[tokens]) < FAR / 4 and num < 0.2 * tokens.sum():
        return None
    where = _where(view, tokens)
    return Evidence(
        score=0.95,
        tokens=tokens,
        measures=(
            Measure(name="value", value=float(value), unit="nat"),
            Measure(name="tokens with it", value=float(tokens.sum()), unit="tokens"),
            Measure(
                name="mean of the other engine there",
                value=float(others[tokens].mean()),
                unit="nat",
            ),
        ),
        explanation=(
            f"`{name}` is exactly {value:g} at {int(tokens.sum())} tokens{where}, where "
            f"the other engine's mean is {others[tokens].mean():.2f} nat."
        ),
        next_step=(
            f"Find where `{name}` log-probs are padded or appended with {value:g}, and "
            "keep the sampled value or mask the token."
        ),
    )


def _where(view: View, tokens: Array) -> str:
    last = np.r_[view.sample[1:] != view.sample[:-1], True]
    if tokens[last].sum() > 0.9 * tokens.sum():
        return f", the last token of {tokens[last].mean():.0%} of rows"
    return ""

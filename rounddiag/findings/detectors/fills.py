"""`filled_log_probs`: one exact value stands where a log-prob should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.detectors.masks import observation_runs
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.findings.view import Array, View

# |diff| in nats from which an exact value is far from the other engine's: the most
# likely of two tokens is at 0.7.
FAR = 0.7
MIN_COUNT = 3
# A filled value is far from the other engine at this part of its tokens at least; a
# value of a coarse grid recurs too, but the other engine is near.
MIN_FAR_SHARE = 0.1
MOST = 0.9
NEAR_ZERO = 0.02  # nats
MIN_RATIO = 5.0


@register("filled_log_probs", stage="exact")
def filled_log_probs(view: View) -> Iterator[Evidence]:
    """Find exact values that recur where the other engine is far from them."""
    sides = ((view.r, view.o, view.b), (view.o, view.r, view.a))
    for values, others, name in sides:
        tokens = filled_tokens(view, values)
        if tokens is not None:
            yield _evidence(view, tokens, values, others, name)


def filled_tokens(view: View, values: Array) -> Array | None:
    """Return the tokens at which a column holds one exact, wrong value."""
    far = view.abs > FAR
    if not far.any():
        return None
    known, counts = np.unique(values[far], return_counts=True)
    value, num = known[counts.argmax()], int(counts.max())
    tokens = values == value
    if num < MIN_COUNT:
        return None
    if value != 0 and num < MIN_FAR_SHARE * tokens.sum():
        return None
    if value == 0:
        # A sure token is 0 exactly; where the other engine lacks context it is as far
        # from such zeros as from values just below.
        below = (values < 0) & (values > -NEAR_ZERO)
        rate = far[tokens].mean()
        if below.any() and rate < MIN_RATIO * far[below].mean():
            return None
        # Zeros of the widened mask are another cause; sure tokens are truly 0.
        tokens &= ~observation_runs(view)
        tokens &= view.abs > FAR / 10
        tokens |= _same_place(view, tokens, values == value)
    return tokens if (tokens & far).sum() >= MIN_COUNT else None


def _same_place(view: View, tokens: Array, equal: Array) -> Array:
    """Add equal values at the last tokens of rows, if that is where the fills are."""
    last = _last(view)
    if tokens[last].sum() > MOST * tokens.sum():
        return last & equal
    return tokens


def _last(view: View) -> Array:
    return np.r_[view.sample[1:] != view.sample[:-1], True]


def _evidence(
    view: View, tokens: Array, values: Array, others: Array, name: str
) -> Evidence:
    value, mean = float(values[tokens][0]), float(others[tokens].mean())
    num, last = int(tokens.sum()), _last(view)
    place = ""
    if tokens[last].sum() > MOST * num:
        place = f", the last token of {tokens[last].mean():.0%} of the samples"
    return Evidence(
        score=0.97,
        tokens=tokens,
        measures=(
            Measure(name="value", value=value, unit="nat"),
            Measure(name="tokens with it", value=num, unit="tokens"),
            Measure(name="mean of the other engine there", value=mean, unit="nat"),
        ),
        explanation=(
            f"`{name}` is exactly {value:g} at {num} tokens{place}; the other engine's "
            f"mean there is {mean:.2f} nat."
        ),
        next_step=(
            f"Find where `{name}` log-probs are padded or appended with {value:g}; keep "
            "the sampled value, or mask the token."
        ),
    )

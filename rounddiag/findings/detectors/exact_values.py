"""`filled_log_probs`, `identical_log_probs`, `low_precision`: by exact values.

One value in place of log-probs, two columns that are bitwise equal, and the grid of a
short dtype.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.findings.detectors.masks import not_written
from rounddiag.findings.finding import Evidence, Measure
from rounddiag.findings.registry import register
from rounddiag.wording import pluralize, with_minus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag._typing import Array
    from rounddiag.findings.view import View


# An exact value is far from the other engine's from this |diff| on, in nats. The more
# likely of two tokens is at 0.7 or nearer.
FAR = 0.7
MIN_COUNT = 3
# The other engine is far from a filled value at this share of its tokens or more. A
# value on a coarse grid recurs as well (log 0.5 of two equal logits), but the other
# engine is near it at most tokens.
MIN_FAR_SHARE = 0.5
MOST = 0.9
NEAR_ZERO = 0.02  # nats
MIN_RATIO = 5.0
MIN_Z = 4.0
MIN_BELOW, MIN_ZEROS = 20, 4
PLACED = 0.7
# A tail of zeros against chance, in nats: of one sample, and of all that reach it.
MIN_ROW_WORTH, MIN_WORTH = 5.0, 25.0


@register("filled_log_probs", kind="fact")
def filled_log_probs(view: View) -> Iterator[Evidence]:
    """Find exact values that recur where the other engine is far from them."""
    if view.is_fitted:
        return
    sides = (
        (view.log_prob_b, view.log_prob_a, view.b),
        (view.log_prob_a, view.log_prob_b, view.a),
    )
    for values, others, name in sides:
        tokens = filled_tokens(view, values)
        if tokens is not None:
            found = _fill_evidence(view, tokens, values, others, name)
            # The same value at other tokens of these samples may be a fill too.
            same = np.isin(view.sample, np.unique(view.sample[tokens]))
            same &= (values == values[tokens][0]) & ~not_written(view)
            yield replace(found, tokens=tokens | same)


def filled_tokens(view: View, values: Array) -> Array | None:
    """Return the tokens at which a column holds one exact, wrong value."""
    far = view.abs_diff > FAR
    if not far.any():
        return None
    for search in (_find_recurring, _zeros):
        tokens = search(view, values, far)
        if tokens is not None:
            return tokens
    return _zero_tails(view, values)


def _find_recurring(view: View, values: Array, far: Array) -> Array | None:
    """Return the tokens of the nonzero value that recurs most among far values."""
    known, counts = np.unique(values[far & (values != 0)], return_counts=True)
    if len(known) == 0:
        return None
    tokens: Array = values == known[counts.argmax()]
    num = int(counts.max())
    if num < MIN_COUNT or num < MIN_FAR_SHARE * tokens.sum():
        return None
    # Samples of one prompt begin with the same tokens, where both columns, or one,
    # recur.
    others = view.log_prob_a if values is view.log_prob_b else view.log_prob_b
    places = np.unique(
        np.stack([view.position, view.token_id])[:, tokens & far], axis=1
    )
    least = max(MIN_COUNT, num / 2)
    if min(len(np.unique(others[tokens & far])), places.shape[1]) < least:
        return None
    return tokens


def _zeros(view: View, values: Array, far: Array) -> Array | None:
    """Return zeros that are not certain tokens.

    The log-prob of a certain token is exactly 0. An engine that lacks context is as
    often far from such zeros as from values just below 0 and from others in the same
    samples, and it is near most of the zeros.
    """
    zero = (values == 0) & ~not_written(view)
    tokens = zero & (view.abs_diff > FAR / 10)
    num = int((tokens & far).sum())
    below = (values < 0) & (values > -NEAR_ZERO)
    if below.sum() < MIN_BELOW:
        # Too few certain tokens to compare with: if nearly all zeros are far, they are
        # fills.
        return zero if num > max(MOST * zero.sum(), MIN_ZEROS) else None
    if num < MIN_COUNT:
        return None
    chance = float(far[below].mean()) * int(zero.sum())
    if num < MIN_RATIO * chance or num < chance + MIN_Z * chance**0.5:
        return None
    mine = np.isin(view.sample, np.unique(view.sample[tokens]))
    tail = _tail(view, values)
    placed = tokens & tail
    others = far & mine & ~tokens
    is_mixed = placed.sum() < PLACED * tokens.sum() and num < MOST * zero.sum()
    if is_mixed and others.sum() > num / 8:
        return None
    return _same_place(view, tokens, zero) | (tail & mine)


def _zero_tails(view: View, values: Array) -> Array | None:
    """Return ends of samples that are 0 throughout, even at uncertain tokens.

    If another fault makes many tokens far, single zeros among them prove nothing. But
    at an uncertain token, 0 is as rare at the end as at other tokens of its id, and
    over the tokens of a tail the probabilities multiply.
    """
    if view.batch.response_ids is None:
        return None
    zero = values == 0
    tail = _tail(view, values)
    others = view.log_prob_a if values is view.log_prob_b else view.log_prob_b
    unsure = others < -FAR / 10
    known, code = view.distinct_ids
    outside = unsure & ~tail
    num = np.bincount(code, weights=outside, minlength=len(known))
    hits = np.bincount(code, weights=outside & zero, minlength=len(known))
    usual = (hits.sum() + 1) / (num.sum() + 2)
    chance = ((hits + usual) / (num + 1))[code]
    gain = np.where(tail & unsure, -np.log(chance), 0.0)
    size = view.num_per_sample
    worth = np.bincount(view.sample, gain, len(size)) - np.log(np.maximum(size, 1))
    found = worth > MIN_ROW_WORTH
    if worth[found].sum() < MIN_WORTH:
        return None
    tokens: Array = tail & found[view.sample]
    return tokens


def _tail(view: View, values: Array) -> Array:
    """Return the tokens of samples after the last one whose value is not 0."""
    index = np.arange(len(view))
    begins = np.flatnonzero(np.r_[True, view.sample[1:] != view.sample[:-1]])
    last = np.maximum.reduceat(np.where(values == 0, -1, index), begins)
    tail: Array = index > np.repeat(last, np.diff(np.r_[begins, len(view)]))
    return tail


def _same_place(view: View, tokens: Array, equal: Array) -> Array:
    """Add equal values at the last tokens of rows, if that is where the fills are."""
    last = _last(view)
    if tokens[last].sum() > MOST * tokens.sum():
        return last & equal
    return tokens


def _last(view: View) -> Array:
    last: Array = np.r_[view.sample[1:] != view.sample[:-1], True]
    return last


def _fill_evidence(
    view: View, tokens: Array, values: Array, others: Array, name: str
) -> Evidence:
    value, mean = float(values[tokens][0]), float(others[tokens].mean())
    num, last = int(tokens.sum()), _last(view)
    place = ""
    if tokens[last].sum() > MOST * num:
        place = f", the last token of {tokens[last].mean():.0%} of the samples"
    return Evidence(
        tokens=tokens,
        measures=(
            Measure(name="value", value=value, unit="nat"),
            Measure(name="tokens with it", value=num, unit="tokens"),
            Measure(name="mean of the other engine there", value=mean, unit="nat"),
        ),
        shown=(
            f"`{name}` is exactly {value:g} at {num} tokens{place}; the other engine's "
            f"mean there is {with_minus(f'{mean:.2f}')} nat."
        ),
        next_step=(
            f"Find where `{name}` log-probs are padded or appended with {value:g}; "
            "keep the sampled value, or mask the token."
        ),
    )


# A row counts if it has this many uncertain tokens: certain ones are 0 in both engines.
MIN_UNCERTAIN = 5
# Probability that a whole row like the others is equal by chance.
MAX_CHANCE = 1e-4


@register("identical_log_probs", kind="fact")
def identical_log_probs(view: View) -> Evidence | None:
    """Find rows whose log-probs are bitwise equal in both columns."""
    if view.is_fitted:
        return None  # a fit may leave nothing
    uncertain = view.per_sample(view.uncertain.astype(float)) * view.num_per_sample
    differs = view.per_sample((view.diff != 0).astype(float))
    rows = (differs == 0) & (uncertain >= MIN_UNCERTAIN)
    others = (view.num_per_sample > 0) & ~rows
    if not rows.any():
        return None
    whole = not view.abs_diff.any()
    if not whole:
        # By chance about half of the tokens may be equal, never a whole row.
        equal = 1 - float(np.nanmean(differs[others]))
        expected = equal ** float(np.median(uncertain[rows]))
        if expected > MAX_CHANCE:
            return None
    if not whole and "rollout" not in (view.a, view.b):
        return None  # micro-batches of equal shape are equal in both passes
    where = "All rows" if whole else f"{int(rows.sum())} of {len(rows)} rows"
    return Evidence(
        tokens=rows[view.sample],
        adds_mismatch=False,
        where={
            "fact": f"{int(rows.sum()):,} of {pluralize(len(rows), 'sample')} have "
            "equal log-probs from both engines"
        },
        shown=(
            f"{where} have bitwise equal log-probs in both columns. That is true "
            "on-policy scoring, or one column is a copy of the other."
        ),
        measures=(Measure(name="equal rows", value=float(rows.sum()), unit="samples"),),
        next_step=(
            "Look for a bypass that sets old to rollout (verl: "
            "`rollout_correction.bypass_mode`), and log both columns."
        ),
    )


# Share of values on the grid. By chance, one float32 value in 2**13 or fewer is.
MIN_SHARE = 0.9
MIN_TOKENS = 30
# Low bits of float32 that are 0 for each dtype.
_LOW_BITS = {"bfloat16": 16, "float16": 13}
_STEPS = tuple(2.0**-k for k in range(1, 9))


@register("low_precision", kind="fact")
def low_precision(view: View) -> Iterator[Evidence]:
    """Find a column whose values all lie on a coarse grid."""
    if view.is_fitted:
        return
    chosen = view.uncertain
    if chosen.sum() < MIN_TOKENS:
        return
    for values, name in ((view.log_prob_b, view.b), (view.log_prob_a, view.a)):
        grid = find_grid(values[chosen])
        if grid is None:
            continue
        text, step = grid
        yield Evidence(
            severity="note",
            adds_mismatch=False,
            tokens=np.ones(len(view), dtype=bool),
            measures=(
                Measure(name="share on the grid", value=1.0, unit="share"),
                Measure(name="typical step", value=step, unit="nat"),
                Measure(
                    name="median |diff|",
                    value=float(np.median(view.abs_diff)),
                    unit="nat",
                ),
            ),
            shown=f"`{name}` log-probs lie on the grid of {text}.",
            next_step=(
                "Compute log-softmax, and store log-probs, in float32 on both sides; "
                "set lm_head to float32 to see what is left."
            ),
        )


def find_grid(values: Array) -> tuple[str, float] | None:
    """Return the grid that values lie on, and its step near them, or None."""
    for step in _STEPS:
        if (values == np.round(values / step) * step).mean() > MIN_SHARE:
            return f"multiples of {step:g}", step
    bits = values.astype(np.float32).view(np.uint32)
    for name, low in _LOW_BITS.items():
        if (bits & ((1 << low) - 1) == 0).mean() > MIN_SHARE:
            size = float(np.median(np.abs(values)))
            return name, size * 2.0 ** -(23 - low)
    return None

"""Fixed values in place of log-probs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import special

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.checks.contracts import (
    LEVEL,
    Contract,
    Fault,
    fault_at,
    generated_where,
    merge_faults,
    require_tokens,
)
from rounddiag.checks.mask import find_unwritten
from rounddiag.checks.written import Written
from rounddiag.core.columns import token_samples
from rounddiag.core.divergence import FACTOR_2
from rounddiag.core.scores import pair_of
from rounddiag.core.sums import pack_tokens
from rounddiag.wording import percent, pluralize, with_minus

# Probability of a claim by chance, shared by eight tests: two columns, two values each,
# at the ends of samples and elsewhere.
_LEVEL = LEVEL / 8


def _find_fills(batch: Batch) -> Fault | None:
    require_tokens(batch)
    if batch.lacks("old", "rollout"):
        return _find_in_one_engine(batch)
    is_far = generated_where(
        batch, lambda a, b: (a - b).abs() > FACTOR_2, *batch.both_log_probs()
    )
    if len(is_far) == 0:
        return None
    written, pair = Written.from_batch(batch), pair_of(batch)
    unwritten = find_unwritten(written)
    sides = (
        (pair.b, written.rollout, written.old),
        (pair.a, written.old, written.rollout),
    )
    fault = merge_faults(
        _describe(batch, written, tokens, name, values, others)
        for name, values, others in sides
        for tokens in _fills_of(written, values, others, unwritten)
        # A token that a grammar forces has a log-prob of exactly 0.
        if not (written.may_be_forced and values[tokens].max() == 0)
    )
    return written.unless_forced(fault)


def _fills_of(
    written: Written, values: Array, others: Array, unwritten: Array
) -> Iterator[Array]:
    """Yield the tokens of each value that fills a column; bool arrays.

    It recurs exactly where the other engine is far from it. A sound value can recur as
    well: where the engine is certain, on a coarse grid, in siblings of one prompt.
    """
    far = np.abs(values - others) > FACTOR_2
    if not far.any():
        return
    known, counts = np.unique(values[far & (values != 0)], return_counts=True)
    if len(known):
        same = values == known[counts.argmax()]
        if _chance_of_far(written, values, others, same) < _LEVEL:
            yield same & written.in_samples_with(same & far)
    zero = (values == 0) & ~unwritten
    size = written.size_of_end(zero)
    # At the ends of samples, from the length on that is least likely by chance, and
    # elsewhere.
    lengths = np.unique(size[far & (size > 0)])
    chances = [(_chance_of_far(written, values, others, size >= n), n) for n in lengths]
    chance, shortest = min(chances, default=(1.0, 0))
    ends = (size >= shortest) & (chance * max(len(chances), 1) < _LEVEL)
    rest = zero & ~ends
    if _chance_of_far(written, values, others, rest) >= _LEVEL:
        rest = np.zeros_like(zero)
    tokens = np.zeros_like(zero)
    for part in (ends, rest):
        tokens |= part & written.in_samples_with(part & far)
    if tokens.any():
        yield tokens


def _chance_of_far(
    written: Written, values: Array, others: Array, tokens: Array
) -> float:
    """Return how likely the other engine is so often far from one value by chance.

    The rate is that of the other tokens of the same samples which the engine finds
    likelier than not, if that is what it says of these: a value nearer to 0 is no less
    certain. Of less likely ones it is one half at least: a sound engine is more often
    near the other than far from it.
    """
    far = np.abs(values - others) > FACTOR_2
    hits = tokens & far
    if not hits.any():
        return 1.0
    value = values[hits][0]
    mine = written.in_samples_with(hits)
    num_near = int((tokens & ~far & mine).sum())
    # Samples of one prompt begin with the same tokens, where columns recur together.
    num_far = _num_pairs(written.position[hits], others[hits])
    if value != 0:
        num_ids = _num_pairs(written.position[hits], written.token_id[hits])
        num_far = min(num_far, num_ids, len(np.unique(others[hits])))
    rest = mine & (values != value)
    if value > -FACTOR_2:
        if 2 * hits.sum() <= (far & mine).sum():
            return 1.0  # most far tokens have other values: this one is not the reason
        rest &= values > -FACTOR_2
    chance = (far[rest].sum() + 1) / (rest.sum() + 2)
    if value <= -FACTOR_2:
        chance = max(chance, 0.5)
    return float(special.bdtrc(num_far - 1, num_far + num_near, chance))


def _num_pairs(first: Array, second: Array) -> int:
    return len(np.unique(np.stack([first, second]), axis=1).T)


def _describe(
    batch: Batch,
    written: Written,
    tokens: Array,
    name: str,
    values: Array,
    others: Array,
) -> Fault | None:
    where = ", the last of samples" if (tokens <= written.ends_sample).all() else ""
    value = with_minus(f"{values[tokens][0]:g}")
    mean = with_minus(f"{others[tokens].mean():.2f}")
    words = (
        f"whose {name} log-prob is exactly {value}{where}, and {mean} nat on average"
        " by the other engine"
    )
    at = batch.offsets.new_tensor(written.flat[tokens])
    return fault_at(batch, at, words, is_exact=True)


# Of one engine alone, a value is a fill if at least this share and this number of a
# sample's tokens have it; log-probs this near 0, in nats, repeat where it is certain.
_SHARE, _TOKENS, _SURE = 1 / 4, 8, 1e-3


def _find_in_one_engine(batch: Batch) -> Fault | None:
    batch.require("old" if batch.rollout_log_probs is None else "rollout")
    name = "old" if batch.rollout_log_probs is None else "rollout"
    values = pack_tokens(batch, batch.log_probs(name))
    sample = token_samples(batch)
    num = np.bincount(sample, minlength=batch.num_samples)
    fills = {}
    for row in np.flatnonzero(num >= _TOKENS):
        own = values[np.searchsorted(sample, row) :][: num[row]]
        is_one = (own == own[0]).all()
        known, counts = np.unique(
            own if is_one else own[np.abs(own) > _SURE], return_counts=True
        )
        if counts.max(initial=0) >= max(_TOKENS, _SHARE * num[row]):
            fills[int(row)] = known[counts.argmax()], counts.max() / num[row]
    if not fills:
        return None
    first, (value, share) = next(iter(fills.items()))
    return Fault(
        f"{pluralize(len(fills), 'sample')} with one {name} log-prob at many tokens:"
        f" sample {first} has {with_minus(f'{value:.6g}')} at {percent(share)} of them",
        tuple(fills),
    )


FILLS = Contract(
    "no value fills the log-probs",
    "rollout_log_probs, old_log_probs",
    _find_fills,
    effect="the ratios of these tokens are those of a fixed value",
    kind="bug",
    cause="filled_log_probs",
    advice="Find where log-probs are padded or appended; keep the sampled value, or"
    " mask the token.",
)

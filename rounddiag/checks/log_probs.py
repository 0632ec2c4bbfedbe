"""Log-probabilities of generated tokens: values that only a bug can produce."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.checks.contracts import (
    Contract,
    Fault,
    UntestableError,
    blocks_where,
    fault_at,
    find_samples,
    generated_where,
    merge_faults,
    require_tokens,
)
from rounddiag.core.scores import pair_of
from rounddiag.schema import Pair
from rounddiag.wording import pluralize

# Below this, in nats, an engine is uncertain of the token.
_UNSURE = -1.0
# float32 rounding can put a log-softmax at most this far above 0.
_ROUNDING = 1e-4
# Scores that are importance weights, not log-probs.
_WEIGHTED = {"rollout_is"}
_FIELDS = "rollout_log_probs, old_log_probs"


def why_not_measurable(
    response_mask: Tensor,
    rollout_log_probs: Tensor,
    old_log_probs: Tensor,
    pair: Pair | None = None,
) -> str:
    """Return why the mismatch cannot be measured; empty if it can.

    It cannot if both engines' log-probabilities are bit-identical, or if those of one
    engine are 0 at all generated tokens.

    Examples
    --------
    >>> two = torch.tensor([-1.0, -2.0])
    >>> why_not_measurable(torch.tensor([1, 1]), two, two + 0.5)
    ''
    >>> why_not_measurable(torch.tensor([1, 1]), two, torch.zeros(2))[:46]
    '`old_log_probs` are 0 at all 2 generated token'
    """
    num_tokens = int(response_mask.count_nonzero())
    if num_tokens == 0:
        return ""
    old, rollout = (pair.a, pair.b) if pair else ("old_log_probs", "rollout_log_probs")
    if not _any_where(response_mask, torch.ne, rollout_log_probs, old_log_probs):
        return (
            f"`{old}` and `{rollout}` are bit-identical at all"
            f" {num_tokens} generated tokens: the trainer took the sampler's numbers"
            " (bypass mode)"
        )
    for name, engine, log_probs in (
        (old, "its engine" if pair else "the training engine", old_log_probs),
        (rollout, "its engine" if pair else "the sampling engine", rollout_log_probs),
    ):
        if not _any_where(response_mask, _is_not_zero, log_probs):
            return (
                f"`{name}` are 0 at all {num_tokens} generated tokens: {engine}"
                " did not compute them"
            )
    return ""


def _any_where(mask: Tensor, condition: Callable[..., Tensor], *fields: Tensor) -> bool:
    """Return whether a condition holds at any generated token."""
    return next(blocks_where(mask, condition, *fields), None) is not None


def _is_not_zero(values: Tensor) -> Tensor:
    return values != 0


def _not_measurable(batch: Batch) -> Fault | None:
    require_tokens(batch)
    old, rollout = batch.both_log_probs()
    pair = pair_of(batch)
    reason = batch.meta.get("not_measurable") or why_not_measurable(
        batch.response_mask, rollout, old, None if pair.is_standard else pair
    )
    return Fault(str(reason)) if reason else None


def _pair_log_probs(batch: Batch) -> dict[str, Tensor]:
    """Return the log-probs that are compared, by their names: sampled ones first.

    Those of an engine that the batch lacks are left out; one must be there.
    """
    pair = pair_of(batch)
    scores = {pair.b: batch.rollout_log_probs, pair.a: batch.old_log_probs}
    found = {name: values for name, values in scores.items() if values is not None}
    if not found:
        batch.require("old", "rollout")
    return found


def _log_probs(batch: Batch) -> dict[str, Tensor]:
    """Return both engines' log-probs and all scores that are log-probs."""
    others = {k: v for k, v in batch.scores.items() if k not in _WEIGHTED}
    return {**_pair_log_probs(batch), **others}


def _above_zero(batch: Batch) -> Fault | None:
    return merge_faults(_above(batch, *known) for known in _log_probs(batch).items())


def _above(batch: Batch, name: str, values: Tensor) -> Fault | None:
    indices = generated_where(batch, lambda own: own > _ROUNDING, values)
    fault = fault_at(batch, indices, f"whose {name} log-prob is above 0")
    if fault is None or not (what := _likely_kind(batch, values)):
        return fault
    hint = f"no {name} log-prob is below 0: {what}?"
    return replace(fault, detail=f"{fault.detail}; {hint}")


def _likely_kind(batch: Batch, values: Tensor) -> str:
    """Return what values without a negative one probably are; empty for log-probs."""
    written = values[batch.response_mask != 0]
    finite = written[written.isfinite()]
    if len(finite) == 0 or (finite < 0).any():
        return ""
    return "probabilities" if finite.max() <= 1 else "minus log-probs"


def _zero_alone(batch: Batch) -> Fault | None:
    batch.require("old", "rollout")
    what = f"log-prob is exactly 0, the other engine's under {_UNSURE:g}"
    (b, rollout), (a, old) = _pair_log_probs(batch).items()
    return merge_faults(
        fault_at(
            batch,
            generated_where(batch, _is_zero_alone, *pair),
            f"whose {name} {what}",
        )
        for name, *pair in ((b, rollout, old), (a, old, rollout))
    )


def _is_zero_alone(own: Tensor, other: Tensor) -> Tensor:
    return (own == 0) & (other < _UNSURE)


def _not_finite(batch: Batch) -> Fault | None:
    """Find values that are not finite; a round that is NaN throughout is unknown."""
    faults: list[Fault | None] = []
    unknown = {}
    for name, values in _log_probs(batch).items():
        # x - x is NaN where x is not finite; faster than `isfinite`.
        indices = generated_where(batch, lambda own: own - own != 0, values)
        is_lost, num_lost = _in_lost_rounds(batch, indices, values)
        if num_lost and name not in batch.scores:  # a score may cover some samples only
            unknown[name] = num_lost
        indices = indices[~is_lost]
        faults += [
            fault_at(
                batch, indices[test(values[indices])], f"whose {name} log-prob {what}"
            )
            for test, what in ((torch.isnan, "is NaN"), (torch.isinf, "is infinite"))
        ]
    fault = merge_faults(faults)
    if fault is None and unknown:
        name, num = next(iter(unknown.items()))
        why = f"{name} log-probs are NaN at all tokens of {pluralize(num, 'round')}"
        raise UntestableError(field=f"{name}_log_probs", why=f"{why}: they are unknown")
    return fault


def _in_lost_rounds(
    batch: Batch, indices: Tensor, values: Tensor
) -> tuple[Tensor, int]:
    """Return which tokens are in rounds of NaN alone, and how many such rounds."""
    rounds = batch.rounds
    owner = torch.searchsorted(rounds.start, indices, right=True) - 1
    num_nan = owner[values[indices].isnan()].bincount(minlength=len(rounds))
    is_lost = num_nan == rounds.num_tokens
    return is_lost[owner], int(is_lost.sum())


MEASURABLE = Contract("the mismatch can be measured", _FIELDS, _not_measurable)
_IMPOSSIBLE = partial(Contract, kind="bug", cause="impossible_log_probs")
AT_MOST_ZERO = _IMPOSSIBLE(
    "log-probs are not above 0",
    _FIELDS,
    _above_zero,
    advice="Find where the column is computed: no probability is above 1.",
)
FINITE = _IMPOSSIBLE(
    "log-probs are finite",
    _FIELDS,
    _not_finite,
    advice="Find where NaN or infinity enters; a masked fill of -inf is common.",
)
ZERO_IN_BOTH = Contract(
    "no log-prob is 0 where the other engine is far from it", _FIELDS, _zero_alone
)


# A value is a fill if at least this share and this number of a sample's tokens have it.
_SHARE, _TOKENS = 1 / 4, 8
# Log-probs this near 0, in nats, repeat because the model is certain of the tokens.
# They are a fill only if the sample has no others.
_SURE = 1e-3


def _find_fills(batch: Batch) -> Fault | None:
    require_tokens(batch)
    return merge_faults(
        fault
        for name, score in _pair_log_probs(batch).items()
        for fault in _fills(batch, name, score)
    )


def _fills(batch: Batch, name: str, log_probs: Tensor) -> Iterator[Fault]:
    fills = {}
    for sample in _suspects(batch, log_probs):
        fill = _fill(_generated_log_probs(batch, log_probs, sample))
        if fill is not None:
            fills[sample] = fill
    if fills:
        sample, (value, share) = next(iter(fills.items()))
        yield Fault(
            f"{pluralize(len(fills), 'sample')} with one {name} log-prob at many"
            f" tokens: sample {sample} has {value:.6g} at {share:.0%} of them",
            tuple(fills),
        )


def _suspects(batch: Batch, log_probs: Tensor) -> list[int]:
    """Return the samples that can have a fill; sorting all tokens would be slow."""
    rounds = batch.rounds
    num_tokens = rounds.sample.new_zeros(batch.num_samples)
    num_tokens.index_add_(0, rounds.sample, rounds.num_tokens)
    repeats = find_samples(batch, _repeats(batch, log_probs))
    num_repeats = repeats.bincount(minlength=batch.num_samples)
    # By chance, a fill with share p is next to itself with share p squared.
    repeated = (num_repeats > 0) & (num_repeats >= _SHARE**2 * num_tokens)
    suspected = repeated | _may_be_zero(batch, log_probs)
    return (suspected & (num_tokens >= _TOKENS)).nonzero()[:, 0].tolist()


def _may_be_zero(batch: Batch, log_probs: Tensor) -> Tensor:
    """Return which samples have 0 at the ends and in the middle of every round."""
    rounds = batch.rounds
    middle = rounds.start + rounds.num_tokens // 2
    last = rounds.start + rounds.num_tokens - 1
    probes = torch.cat([rounds.start, middle, last])
    others = rounds.sample.repeat(3)[log_probs[probes] != 0]
    return others.bincount(minlength=batch.num_samples) == 0


def _repeats(batch: Batch, log_probs: Tensor) -> Tensor:
    """Return the generated tokens with the previous token's log-prob, unless near 0."""
    neighbours = (log_probs[1:], log_probs[:-1])
    indices = list(blocks_where(batch.response_mask[1:], _is_repeated, *neighbours))
    return torch.cat(indices) + 1 if indices else batch.offsets.new_empty(0)


def _is_repeated(own: Tensor, before: Tensor) -> Tensor:
    return (own == before) & (own.abs() > _SURE)


def _generated_log_probs(batch: Batch, log_probs: Tensor, sample: int) -> Array:
    begin, stop = batch.offsets[sample : sample + 2].tolist()
    written = batch.response_mask[begin:stop] != 0
    tokens: Array = log_probs[begin:stop][written].float().cpu().numpy()
    return tokens


def _fill(values: Array) -> tuple[float, float] | None:
    """Return the value that fills a sample, and its share of the tokens."""
    if (values == values[0]).all():
        return float(values[0]), 1.0
    distinct, num = np.unique(values[abs(values) > _SURE], return_counts=True)
    if num.max(initial=0) < max(_TOKENS, _SHARE * len(values)):
        return None
    return float(distinct[num.argmax()]), float(num.max() / len(values))


FILLS = Contract("no value fills the log-probs of a sample", _FIELDS, _find_fills)

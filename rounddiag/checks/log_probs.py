"""Log-probabilities of the generated tokens: what no engine computes, only a bug."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rounddiag.checks.contract import Contract, Fault, joined
from rounddiag.checks.places import blocks_where, fault_at, generated_where, need_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from rounddiag.batch import Batch

# Below this, in nats, no engine can be sure of the token.
_FAR = -1.0
# A logit less the logarithm of a sum is this far above 0 at most by float32's rounding.
_ROUNDING = 1e-4
_FIELDS = "rollout_log_probs, old_log_probs"


def why_not_measurable(
    response_mask: Tensor, rollout_log_probs: Tensor, old_log_probs: Tensor
) -> str:
    """Say so where the two engines' numbers are one and the same; else nothing.

    Examples
    --------
    >>> two = torch.tensor([-1.0, -2.0])
    >>> why_not_measurable(torch.tensor([1, 1]), two, two + 0.5)
    ''
    """
    scores = (rollout_log_probs, old_log_probs)
    differing = blocks_where(response_mask, torch.ne, *scores)
    if next(differing, None) is not None:
        return ""
    num_tokens = int((response_mask != 0).sum())
    if num_tokens == 0:
        return ""
    return (
        "`old_log_probs` and `rollout_log_probs` are bit-identical at all"
        f" {num_tokens} generated tokens: the trainer took the sampler's numbers"
        " (bypass mode)"
    )


def _not_measurable(batch: Batch) -> Fault | None:
    need_tokens(batch)
    scores = (batch.rollout_log_probs, batch.old_log_probs)
    told = batch.meta.get("not_measurable")
    reason = told or why_not_measurable(batch.response_mask, *scores)
    return Fault(str(reason)) if reason else None


def _above_zero(batch: Batch) -> Fault | None:
    return joined(
        fault_at(batch, indices, f"whose {name} log-prob is above 0")
        for name, _, indices in _where(batch, lambda own, _: own > _ROUNDING)
    )


def _zero_alone(batch: Batch) -> Fault | None:
    what = f"log-prob is exactly 0, the other engine's under {_FAR:g}"
    return joined(
        fault_at(batch, indices, f"whose {name} {what}")
        for name, _, indices in _where(
            batch, lambda own, other: (own == 0) & (other < _FAR)
        )
    )


def _not_finite(batch: Batch) -> Fault | None:
    return joined(
        fault_at(batch, indices[test(values[indices])], f"whose {name} log-prob {what}")
        # What is not finite has no difference from itself; faster than `isfinite`.
        for name, values, indices in _where(batch, lambda own, _: own - own != 0)
        for test, what in ((torch.isnan, "is NaN"), (torch.isinf, "is infinite"))
    )


def _where(
    batch: Batch, condition: Callable[[Tensor, Tensor], Tensor]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Give each engine's name, log-probs and the tokens where a condition holds.

    The condition gets its own log-probs and those of the other engine.
    """
    rollout, old = batch.rollout_log_probs, batch.old_log_probs
    for name, own, other in (("rollout", rollout, old), ("old", old, rollout)):
        yield name, own, generated_where(batch, condition, own, other)


MEASURABLE = Contract("the mismatch can be measured", _FIELDS, _not_measurable)
AT_MOST_ZERO = Contract("log-probs are not above 0", _FIELDS, _above_zero)
FINITE = Contract("log-probs are finite", _FIELDS, _not_finite)
ZERO_IN_BOTH = Contract(
    "no log-prob is 0 where the other engine is far from it", _FIELDS, _zero_alone
)

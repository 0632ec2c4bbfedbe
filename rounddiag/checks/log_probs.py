"""Log-probabilities of the generated tokens: what no engine computes, only a bug."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rounddiag.checks.contract import Contract, Fault, joined
from rounddiag.checks.places import (
    blocks_where,
    fault_at,
    generated_where,
    need_tokens,
    samples_of,
)

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag.batch import Batch

# Below this, in nats, no engine can be sure of the token.
_FAR = -1.0
# A logit less the logarithm of a sum is this far above 0 at most by float32's rounding.
_ROUNDING = 1e-4
# Scores that weights were put on: they need not be log-probs of anything.
_WEIGHTED = {"rollout_is"}
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


def _log_probs(batch: Batch) -> dict[str, Tensor]:
    """Return both engines' log-probs and the scores that are nothing else."""
    pair = {"rollout": batch.rollout_log_probs, "old": batch.old_log_probs}
    others = {k: v for k, v in batch.scores.items() if k not in _WEIGHTED}
    return {**pair, **others}


def _above_zero(batch: Batch) -> Fault | None:
    return joined(_above(batch, *known) for known in _log_probs(batch).items())


def _above(batch: Batch, name: str, values: Tensor) -> Fault | None:
    indices = generated_where(batch, lambda own: own > _ROUNDING, values)
    fault = fault_at(batch, indices, f"whose {name} log-prob is above 0")
    if fault is None or not (what := _instead(batch, values)):
        return fault
    hint = f"no {name} log-prob is below 0: {what}?"
    return replace(fault, detail=f"{fault.detail}; {hint}")


def _instead(batch: Batch, values: Tensor) -> str:
    """Guess what values of which none is below 0 may be instead."""
    written = values[batch.response_mask != 0]
    finite = written[written.isfinite()]
    if len(finite) == 0 or (finite < 0).any():
        return ""
    return "probabilities" if finite.max() <= 1 else "minus log-probs"


def _zero_alone(batch: Batch) -> Fault | None:
    what = f"log-prob is exactly 0, the other engine's under {_FAR:g}"
    rollout, old = batch.rollout_log_probs, batch.old_log_probs
    return joined(
        fault_at(batch, generated_where(batch, _is_zero_alone, *pair), f"{name} {what}")
        for name, *pair in (
            ("whose rollout", rollout, old),
            ("whose old", old, rollout),
        )
    )


def _is_zero_alone(own: Tensor, other: Tensor) -> Tensor:
    return (own == 0) & (other < _FAR)


def _not_finite(batch: Batch) -> Fault | None:
    return joined(
        fault_at(batch, indices[test(values[indices])], f"whose {name} log-prob {what}")
        for name, values in _log_probs(batch).items()
        for indices in (_nonfinite(batch, name, values),)
        for test, what in ((torch.isnan, "is NaN"), (torch.isinf, "is infinite"))
    )


def _nonfinite(batch: Batch, name: str, values: Tensor) -> Tensor:
    # What is not finite has no difference from itself; faster than `isfinite`.
    indices = generated_where(batch, lambda own: own - own != 0, values)
    if name not in batch.scores or len(indices) == 0:
        return indices
    # A score may be of some samples only.
    known = samples_of(batch, generated_where(batch, torch.isfinite, values))
    return indices[torch.isin(samples_of(batch, indices), known)]


MEASURABLE = Contract("the mismatch can be measured", _FIELDS, _not_measurable)
AT_MOST_ZERO = Contract("log-probs are not above 0", _FIELDS, _above_zero)
FINITE = Contract("log-probs are finite", _FIELDS, _not_finite)
ZERO_IN_BOTH = Contract(
    "no log-prob is 0 where the other engine is far from it", _FIELDS, _zero_alone
)

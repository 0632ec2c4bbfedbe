"""Log-probabilities of generated tokens: values that only a bug can produce."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.batch.layout import real_rows
from rounddiag.checks.contracts import (
    Contract,
    Fault,
    UntestableError,
    blocks_where,
    fault_at,
    generated_where,
    merge_faults,
    require_tokens,
)
from rounddiag.core.loss_ratio import bypass_record
from rounddiag.core.scores import pair_of
from rounddiag.wording import pluralize

# float32 rounding can put a log-softmax at most this far above 0.
_ROUNDING = 1e-4
# Scores that are importance weights, not log-probs.
_WEIGHTED = {"rollout_is"}
_FIELDS = "rollout_log_probs, old_log_probs"


def _not_measurable(batch: Batch) -> Fault | None:
    """Find columns with nothing to compare: not computed, masked out, or copied.

    A loader may know why an engine's log-probs are 0. Equal columns are a copy only
    where the run says so; otherwise the engines agree.
    """
    require_tokens(batch)
    pair, mask = pair_of(batch), batch.response_mask
    names = (
        ("rollout_log_probs", "old_log_probs") if pair.is_standard else (pair.b, pair.a)
    )
    old, rollout = batch.both_log_probs()
    for name, values in zip(names, (rollout, old), strict=True):
        if _any_where(mask, _is_computed, values):
            continue
        num = int(mask.count_nonzero())
        others = torch.cat(real_rows(batch, values))[
            torch.cat(real_rows(batch, mask)) == 0
        ]
        if num_computed := int(_is_computed(others).sum()):
            return Fault(
                "the mask leaves out every token that has a log-prob, as an inverted"
                f" one does: no `{name}` is computed at the {num:,} tokens where it is"
                f" 1, and {num_computed:,} at the {len(others):,} where it is 0"
            )
        if not _any_where(mask, lambda own: own != 0, values):
            zero = f"`{name}` are 0 at all {num:,} generated tokens"
            why = f"{zero}: none was computed, or saved"
            return Fault(str(batch.meta.get("not_measurable", why)))
    record = bypass_record(batch) if pair.is_standard else ""
    if record and not _any_where(mask, torch.ne, rollout, old):
        return Fault(f"{record}: `old_log_probs` are copies of `rollout_log_probs`")
    return None


def _is_computed(values: Tensor) -> Tensor:
    return (values != 0) & values.isfinite()


def _any_where(mask: Tensor, condition: Callable[..., Tensor], *fields: Tensor) -> bool:
    return next(blocks_where(mask, condition, *fields), None) is not None


def _pair_log_probs(batch: Batch) -> dict[str, Tensor]:
    """Return the log-probs that are compared, by their names: sampled ones first.

    Those of an engine that the batch lacks are left out; one must be there.
    """
    pair = pair_of(batch)
    scores = {pair.b: batch.rollout_log_probs, pair.a: batch.old_log_probs}
    present = {name: values for name, values in scores.items() if values is not None}
    if not present:
        batch.require("old", "rollout")
    return present


def _log_probs(batch: Batch) -> dict[str, Tensor]:
    others = {k: v for k, v in batch.scores.items() if k not in _WEIGHTED}
    return {**_pair_log_probs(batch), **others}


def _above_zero(batch: Batch) -> Fault | None:
    faults = []
    for name, values in _log_probs(batch).items():
        indices = generated_where(batch, lambda own: own > _ROUNDING, values)
        fault = fault_at(batch, indices, f"whose {name} log-prob is above 0")
        if fault and (hint := _hint_of_kind(batch, name, values)):
            fault = replace(fault, detail=f"{fault.detail}; {hint}")
        faults.append(fault)
    return merge_faults(faults)


_LOGITS = (
    "logits (vLLM saves them in this column under `logprobs_mode` `raw_logits` or"
    " `processed_logits`)"
)


def _hint_of_kind(batch: Batch, name: str, values: Tensor) -> str:
    """Return what values above 0 probably are; empty for a few bad log-probs.

    What they are in the other engine's terms lies nearer to its log-probs, in mean
    absolute difference, than the median of these does: what knows nothing of a token.
    """
    is_written = (batch.response_mask != 0) & values.isfinite()
    known = values[is_written].double()
    if len(known) == 0:
        return ""
    # Whether log-probs are among them, those below 0 say.
    below = known.where(known <= _ROUNDING, torch.nan)
    kinds = {"log-probs": below, "minus log-probs": -known}
    if known.min() >= 0 and known.max() <= 1:
        kinds["probabilities"] = known.log().where(known > 0, torch.nan)
    none_below = f"no {name} log-prob is below 0: "
    for other, scores in _pair_log_probs(batch).items():
        theirs = scores[is_written].double()
        unlike = (theirs - theirs.nanmedian()).abs().nanmean()
        if other == name or not unlike > 0 or (theirs > _ROUNDING).any():
            continue
        gaps = {kind: (own - theirs).abs().nanmean() for kind, own in kinds.items()}
        nearest = min(gaps, key=lambda kind: float(gaps[kind].nan_to_num(torch.inf)))
        if nearest == "log-probs" and gaps[nearest] < unlike:
            return ""
        if gaps[nearest] < unlike:
            return f"{none_below}{nearest}?"
        return (
            f"of either sign they are far from {other} (mean |{name} + {other}| is"
            f" {gaps['minus log-probs']:.3g} nat): {_LOGITS}?"
        )
    if (known < 0).any():
        return ""
    likely = "probabilities" if known.max() <= 1 else f"minus log-probs, or {_LOGITS}"
    return f"{none_below}{likely}?"


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
                batch, indices[test(values[indices])], f"whose {name} log-prob {words}"
            )
            for test, words in ((torch.isnan, "is NaN"), (torch.isinf, "is infinite"))
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
    rounds = batch.rounds
    owner = torch.searchsorted(rounds.start, indices, right=True) - 1
    num_nan = owner[values[indices].isnan()].bincount(minlength=len(rounds))
    is_lost = num_nan == rounds.num_tokens
    return is_lost[owner], int(is_lost.sum())


MEASURABLE = Contract(
    "the mismatch can be measured",
    _FIELDS,
    _not_measurable,
    effect="empty columns, or a copy, do not say whether the engines agree",
)
_IMPOSSIBLE = partial(Contract, kind="bug", cause="impossible_log_probs")
AT_MOST_ZERO = _IMPOSSIBLE(
    "log-probs are not above 0",
    _FIELDS,
    _above_zero,
    effect="the ratios of these tokens are wrong",
    advice="Find where the column is computed: no probability is above 1.",
)
FINITE = _IMPOSSIBLE(
    "log-probs are finite",
    _FIELDS,
    _not_finite,
    effect="the ratios of these tokens are not numbers, and spoil the loss",
    advice="Find where NaN or infinity enters; a masked fill of -inf is common.",
)

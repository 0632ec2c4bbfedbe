"""What a step knows only at its end: advantages, weights, what was rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rounddiag.capture.holding import WEIGHTS, held
from rounddiag.errors import BatchError
from rounddiag.loaders.fields.field_reader import FieldReader

if TYPE_CHECKING:
    from rounddiag.capture.fields import Parts
    from rounddiag.loaders.tensors.ragged import Ragged


def finished(known: Parts, later: Parts) -> Parts:
    """Add to what is held of a step what the trainer holds at its end.

    The `response_mask` of then is the mask after rejection. Weights become a score: the
    log-probability that, over the sampler's, gives the weight.

    Parameters
    ----------
    known : Parts
        From `held`.
    later : Parts
        From `parts_of`, of the same samples in the same order.

    Raises
    ------
    BatchError
        If the responses are not as long as those that are held.
    """
    ids = "responses" if "responses" in known.fields else "response_ids"
    new = held(later, without={*known.fields} - {ids, "response_mask"})
    fields = dict(new.fields)
    if not torch.equal(fields.pop(ids).values, known.fields[ids].values):
        raise BatchError.build(
            key="responses",
            expected="those of the step's first call, in the same order",
            found="others",
            advice="Call `finish` before the batch is divided or balanced again.",
        )
    if "response_mask" in fields:
        fields["loss_mask"] = fields.pop("response_mask")
    if WEIGHTS in fields:
        fields["rollout_is_log_probs"] = _weighted(known, fields.pop(WEIGHTS))
    return replace(
        known,
        fields={**known.fields, **fields},
        columns={**new.columns, **known.columns},
        left_out=tuple(dict.fromkeys((*known.left_out, *new.left_out))),
    )


def _weighted(known: Parts, weights: Ragged) -> Ragged:
    rollout: Ragged = known.fields["rollout_log_probs"]
    mask, _ = FieldReader(known.fields, known.source).mask()
    weighted = rollout.values + weights.values.log()
    return replace(rollout, values=torch.where(mask != 0, weighted, rollout.values))

"""What a line pasted into AReaL's trainer saves: a rollout batch of trajectories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.fields.reader import divide_sequences
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks._trainer_fields import (
    require_log_probs,
    trainer_reader,
)
from rounddiag.loaders.lazy.arrays import row_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


_NAMES = {
    "logprobs": "rollout_log_probs",
    "prox_logp": "old_log_probs",
    "ref_logp": "ref_log_probs",
    "versions": "versions",  # of the weights, one per token
}
_MASKS = ("input_ids", "loss_mask", "attention_mask")
_NEXT_TOKEN = ("prox_logp", "ref_logp")  # of the training engine: see `areal_fields`
_ADVICE = {
    "logprobs": "Save them with the other fields of AReaL's `rollout_batch`.",
    "prox_logp": "AReaL computes them with `actor.recompute_logprob=true`, or with"
    " `actor.use_decoupled_loss=true`.",
}


def areal_fields(fields: Mapping[str, Any], source: object) -> dict[str, list[Tensor]]:
    """Return the fields of AReaL's trajectories under verl's names.

    At each position, AReaL's training engine writes the value of the next token; the
    value at the last position is meaningless.

    Parameters
    ----------
    fields : mapping of str to rows
    source : path-like
        Named in messages.

    Raises
    ------
    LoadError
        If a field is missing or does not fit.
    """
    require_log_probs(fields, _NAMES, _ADVICE, source)
    known = {*_NAMES, *_MASKS}
    aligned = {name: fields[name] for name in tuple(fields) if name in known}
    for name in _NEXT_TOKEN:
        if name in aligned:
            aligned[name] = [row[:-1] for row in row_list(aligned[name])]
    return divide_sequences(
        aligned, source, tokens="input_ids", written="loss_mask", names=_NAMES
    )


AREAL = Format(
    name="the fields of a rollout batch",
    framework="AReaL",
    files=("*.pt",),
    keys=("input_ids", "loss_mask", "logprobs"),
    read=trainer_reader("loss_mask", areal_fields),
)

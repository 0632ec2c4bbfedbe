"""What a line pasted into a trainer saves, under the trainer's own names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.sequences import divided

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

# Per token, with the first left out; `final_response_mask` is the mask after rejection.
_ROLL = {
    "infer_logprobs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "ref_log_probs": "ref_log_probs",
    "advantages": "advantages",
    "final_response_mask": "loss_mask",
    "scores": "rm_scores",
}


def roll_fields(fields: Mapping[str, Any], source: object) -> dict[str, list[Tensor]]:
    """Return the fields of ROLL's DataProto under verl's names.

    ROLL has masks of the whole sequence, and log-probabilities that lack its first
    token. Its dumps of rollouts were written before the training engine computed any.

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
    if "old_log_probs" not in tuple(fields):
        raise LoadError.build(
            file=source,
            key="old_log_probs",
            expected="the log-probabilities of the training engine",
            found="what ROLL dumps of a rollout, before there are any",
            advice="Save it in the pipeline where `old_log_probs` is in the batch,"
            " before the correction: `batch.save_to_disk(path)`.",
        )
    return divided(
        fields, source, tokens="input_ids", written="response_mask", names=_ROLL
    )

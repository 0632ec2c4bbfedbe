"""What a line pasted into OpenRLHF's PPOTrainer saves: its experiences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.fields.reader import divide_sequences
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks._trainer_fields import (
    require_log_probs,
    trainer_reader,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


_NAMES = {
    "rollout_log_probs": "rollout_log_probs",
    "action_log_probs": "old_log_probs",
    "base_action_log_probs": "ref_log_probs",
    "advantages": "advantages",
}
_ADVICE = {
    "rollout_log_probs": "OpenRLHF asks vLLM for them with"
    " `--algo.advantage.is_correction_level token` (or `seq`).",
    "action_log_probs": "Save it where OpenRLHF has computed them: in"
    " `PPOTrainer.train_step`, after `make_experience_batch`.",
}


def openrlhf_fields(
    fields: Mapping[str, Any], source: object
) -> dict[str, list[Tensor]]:
    """Return the fields of OpenRLHF's experiences under verl's names.

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
    return divide_sequences(
        fields, source, tokens="sequences", written="action_mask", names=_NAMES
    )


OPENRLHF = Format(
    name="the fields of Experience",
    framework="OpenRLHF",
    files=("*.pt", "*.npz", "*.safetensors"),
    keys=("sequences", "action_mask"),
    read=trainer_reader("action_mask", openrlhf_fields),
    verified="written by OpenRLHF 0.11.2's code for experiences, without vLLM",
)

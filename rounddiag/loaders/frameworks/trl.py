"""What a line pasted into TRL's GRPOTrainer saves: its generated completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.fields.reader import FieldReader, end_of
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks._trainer_fields import (
    require_log_probs,
    trainer_reader,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


_NAMES = {
    "sampling_per_token_logps": "rollout_log_probs",
    "old_per_token_logps": "old_log_probs",
    "ref_per_token_logps": "ref_log_probs",
}
_ADVICE = {
    "sampling_per_token_logps": "TRL has them where vLLM samples (`use_vllm=True`) or a"
    " `rollout_func` returns `logprobs`.",
    "old_per_token_logps": "TRL computes them with"
    " `vllm_importance_sampling_correction=True`, or where"
    " `gradient_accumulation_steps` is no multiple of `steps_per_generation *"
    " num_iterations`.",
}


def trl_fields(fields: Mapping[str, Any], source: object) -> dict[str, list[Tensor]]:
    """Return the fields of TRL's completions under verl's names, unpadded.

    The model wrote what `completion_mask` marks, except where `tool_mask` is 0: those
    tokens are the output of tools.

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
    completions = FieldReader(fields, source, "completion_ids")
    real = completions.required_token_rows("completion_mask")
    tools = completions.token_rows("tool_mask")
    mask = real if tools is None else [a * b for a, b in zip(real, tools, strict=True)]
    log_probs = {
        ours: completions.token_rows(theirs) for theirs, ours in _NAMES.items()
    }
    parts = {"responses": completions.tokens.rows(), "response_mask": mask, **log_probs}
    sizes = [end_of(row) for row in real]
    return {
        **_prompts(fields, source),
        **{
            name: [row[:size] for row, size in zip(rows, sizes, strict=True)]
            for name, rows in parts.items()
            if rows is not None
        },
    }


def _prompts(fields: Mapping[str, Any], source: object) -> dict[str, list[Tensor]]:
    if "prompt_ids" not in tuple(fields):
        return {}
    prompts = FieldReader(fields, source, "prompt_ids")
    masks = prompts.required_token_rows("prompt_mask")
    pairs = zip(prompts.tokens.rows(), masks, strict=True)
    return {"prompts": [row[mask != 0] for row, mask in pairs]}


TRL = Format(
    name="the output of GRPOTrainer",
    framework="TRL",
    files=("*.pt", "*.npz", "*.safetensors"),
    keys=("completion_ids", "completion_mask"),
    read=trainer_reader("completion_mask * tool_mask", trl_fields),
    verified="written by TRL 1.16.0, with a sampler in the place of vLLM",
)

"""What a line pasted into a trainer saves, under the trainer's own names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.arrays import table_of
from rounddiag.loaders.completions import without_padding
from rounddiag.loaders.format import Format
from rounddiag.loaders.sample_records import SAME_PROMPT, prompt_group
from rounddiag.loaders.sequences import divided
from rounddiag.loaders.table import Table, Watched, batch_from_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source

    Fields = dict[str, list[Tensor]]

# Per token, with the first left out; `final_response_mask` is the mask after rejection.
_ROLL = {
    "infer_logprobs": "rollout_log_probs",
    "old_log_probs": "old_log_probs",
    "ref_log_probs": "ref_log_probs",
    "advantages": "advantages",
    "final_response_mask": "loss_mask",
    "scores": "rm_scores",
}
_OPENRLHF = {
    "rollout_log_probs": "rollout_log_probs",
    "action_log_probs": "old_log_probs",
    "base_action_log_probs": "ref_log_probs",
    "advantages": "advantages",
}
_TRL = {
    "sampling_per_token_logps": "rollout_log_probs",
    "old_per_token_logps": "old_log_probs",
    "ref_per_token_logps": "ref_log_probs",
}
# Why one of the two required fields is not there, and what makes it so that it is.
_ADVICE = {
    "sampling_per_token_logps": "TRL has them where vLLM samples (`use_vllm=True`) or a"
    " `rollout_func` returns `logprobs`.",
    "old_per_token_logps": "TRL computes them with"
    " `vllm_importance_sampling_correction=True`, or where"
    " `gradient_accumulation_steps` is no multiple of `steps_per_generation *"
    " num_iterations`.",
    "rollout_log_probs": "OpenRLHF asks vLLM for them with"
    " `--algo.advantage.is_correction_enable`.",
    "action_log_probs": "Save it where OpenRLHF has computed them: in"
    " `PPOTrainer.train_step`, after `make_experience_batch`.",
    "old_log_probs": "What ROLL dumps of a rollout was written before there are any:"
    " save the batch in the pipeline where they are, before the correction.",
}


def roll_fields(fields: Mapping[str, Any], source: object) -> Fields:
    """Return the fields of ROLL's DataProto under verl's names.

    ROLL has masks of the whole sequence, and log-probabilities that lack its first
    token.

    Parameters
    ----------
    fields : mapping of str to rows
    source : path-like
        Named in messages.

    Raises
    ------
    LoadError
        If a field is missing or does not fit; ROLL's own dumps of rollouts have no
        `old_log_probs`.
    """
    _require(fields, _ROLL, source)
    return divided(
        fields, source, tokens="input_ids", written="response_mask", names=_ROLL
    )


def _openrlhf_fields(fields: Mapping[str, Any], source: object) -> Fields:
    _require(fields, _OPENRLHF, source)
    return divided(
        fields, source, tokens="sequences", written="action_mask", names=_OPENRLHF
    )


def _trl_fields(fields: Mapping[str, Any], source: object) -> Fields:
    _require(fields, _TRL, source)
    return without_padding(fields, source, _TRL)


def _require(
    fields: Mapping[str, Any], names: Mapping[str, str], source: object
) -> None:
    """Say how to have the two sets of log-probabilities where one is not there."""
    held = tuple(fields)  # `in` may read a whole field
    for theirs, ours in names.items():
        if ours in {"rollout_log_probs", "old_log_probs"} and theirs not in held:
            engine = "training" if ours == "old_log_probs" else "sampling"
            raise LoadError.build(
                file=source,
                key=theirs,
                expected=f"the log-probabilities of the {engine} engine",
                found="none",
                advice=_ADVICE[theirs],
            )


def _read(
    mask: str,
    renamed: Callable[[Mapping[str, Any], object], Fields],
    root: Table | Mapping[Any, object],
    source: Source,
) -> Batch:
    table = table_of(root, source)
    held = Watched(table.fields)
    fields = renamed(held, source.path)
    groups = _groups(fields) if not {"uid", "group_ids"} & {*table.columns} else {}
    whole = Table(
        fields=fields,
        columns={**table.columns, **groups},
        info={**table.info, "old_log_probs_source": "a pass of its own"},
        left_out=held.left_out,
    )
    batch = batch_from_table(whole, source)
    told = {"mask_source": mask, **(SAME_PROMPT if groups else {})}
    return replace(batch, meta={**batch.meta, **told})


def _groups(fields: Fields) -> dict[str, list[str]]:
    prompts = fields.get("prompts")
    return {} if prompts is None else {"uid": [prompt_group(row) for row in prompts]}


TRL = Format(
    name="the output of GRPOTrainer",
    framework="TRL",
    files=("*.pt", "*.npz", "*.safetensors"),
    keys=("completion_ids", "completion_mask"),
    read=partial(_read, "completion_mask * tool_mask", _trl_fields),
)
OPENRLHF = Format(
    name="the fields of Experience",
    framework="OpenRLHF",
    files=("*.pt", "*.npz", "*.safetensors"),
    keys=("sequences", "action_mask"),
    read=partial(_read, "action_mask", _openrlhf_fields),
)

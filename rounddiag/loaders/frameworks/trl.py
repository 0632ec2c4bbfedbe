"""What a line pasted into a trainer saves, under the trainer's own names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.fields.padding import divided, end_of
from rounddiag.loaders.fields.reader import FieldReader
from rounddiag.loaders.format import Format
from rounddiag.loaders.lazy.arrays import row_list
from rounddiag.loaders.lazy.fields import LazyFields
from rounddiag.loaders.tabular.arrays import table_of
from rounddiag.loaders.tabular.json_lines import SAME_PROMPT, prompt_group
from rounddiag.loaders.tabular.table import Table, batch_from_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source

    Fields = dict[str, list[Tensor]]


def without_padding(
    held: Mapping[str, Any], source: object, names: Mapping[str, str]
) -> dict[str, list[Tensor]]:
    """Return TRL's fields under verl's names, unpadded.

    The model wrote what `completion_mask` marks, except where `tool_mask` is 0: there
    is the output of tools.

    Parameters
    ----------
    held : mapping of str to rows
    source : path-like
        Named in messages.
    names : mapping of str to str
        What is per token of the completion, where it is there, and its name in verl.

    Raises
    ------
    LoadError
        If the fields are missing or do not fit.
    """
    completions = FieldReader(held, source, "completion_ids")
    real = completions.required_token_rows("completion_mask")
    tools = completions.token_rows("tool_mask")
    written = (
        real if tools is None else [a * b for a, b in zip(real, tools, strict=True)]
    )
    found = {ours: completions.token_rows(theirs) for theirs, ours in names.items()}
    parts = {"responses": completions.tokens.rows(), "response_mask": written, **found}
    sizes = [end_of(row) for row in real]
    return {
        **_prompts(held, source),
        **{
            name: [row[:size] for row, size in zip(rows, sizes, strict=True)]
            for name, rows in parts.items()
            if rows is not None
        },
    }


def _prompts(held: Mapping[str, Any], source: object) -> dict[str, list[Tensor]]:
    if "prompt_ids" not in tuple(held):
        return {}
    prompts = FieldReader(held, source, "prompt_ids")
    masks = prompts.required_token_rows("prompt_mask")
    pairs = zip(prompts.tokens.rows(), masks, strict=True)
    return {"prompts": [row[mask != 0] for row, mask in pairs]}


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
_AREAL = {
    "logprobs": "rollout_log_probs",
    "prox_logp": "old_log_probs",
    "ref_logp": "ref_log_probs",
}
_AREAL_MASKS = ("input_ids", "loss_mask", "attention_mask")
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
    "logprobs": "Save them with the other fields of AReaL's `rollout_batch`.",
    "prox_logp": "AReaL computes them with `actor.recompute_logprob=true`, or with"
    " `actor.use_decoupled_loss=true`.",
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


def openrlhf_fields(fields: Mapping[str, Any], source: object) -> Fields:
    """Return the fields of OpenRLHF's experiences under verl's names."""
    _require(fields, _OPENRLHF, source)
    return divided(
        fields, source, tokens="sequences", written="action_mask", names=_OPENRLHF
    )


def trl_fields(fields: Mapping[str, Any], source: object) -> Fields:
    """Return the fields of TRL's completions under verl's names."""
    _require(fields, _TRL, source)
    return without_padding(fields, source, _TRL)


def areal_fields(fields: Mapping[str, Any], source: object) -> Fields:
    """Return the fields of AReaL's trajectories under verl's names.

    AReaL's training engine writes the value of the next token at each place, and
    something without a meaning at the last.
    """
    _require(fields, _AREAL, source)
    known = {*_AREAL, *_AREAL_MASKS}
    held = {name: fields[name] for name in tuple(fields) if name in known}
    for name in ("prox_logp", "ref_logp"):
        if name in held:
            held[name] = [row[:-1] for row in row_list(held[name])]
    return divided(held, source, tokens="input_ids", written="loss_mask", names=_AREAL)


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
    held = LazyFields.watch(table.fields)
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
    read=partial(_read, "completion_mask * tool_mask", trl_fields),
    verified="written by TRL 1.16.0, with a sampler in the place of vLLM",
)
AREAL = Format(
    name="the fields of a rollout batch",
    framework="AReaL",
    files=("*.pt",),
    keys=("input_ids", "loss_mask", "logprobs"),
    read=partial(_read, "loss_mask", areal_fields),
)
OPENRLHF = Format(
    name="the fields of Experience",
    framework="OpenRLHF",
    files=("*.pt", "*.npz", "*.safetensors"),
    keys=("sequences", "action_mask"),
    read=partial(_read, "action_mask", openrlhf_fields),
    verified="written by OpenRLHF 0.11.2's code for experiences, without vLLM",
)

"""Fields that a recipe saves in a trainer, under the trainer's own names.

============  =====================================================================
`TRL`         GRPOTrainer's generated completions
`OPENRLHF`    experiences: whole sequences
`AREAL`       a rollout batch of trajectories
`TINKER`      Tinker's own summaries, which lack what its recipe saves
============  =====================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.columns.sources import row_list
from rounddiag.core.versions import TRAINER
from rounddiag.loaders.field_reader import FieldReader, divide_sequences, mask_end
from rounddiag.loaders.format import Format
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, as_table, batch_from_table

_Fields = dict[str, list[Tensor]]
# From a trainer's fields and the name of their source to fields under verl's names.
ToVerl = Callable[[Mapping[str, Any], object], _Fields]


def trainer_reader(mask_source: str, to_verl: ToVerl) -> Callable[[Any, Source], Batch]:
    """Return a `Format.read` for fields under a trainer's own names.

    Samples with the same prompt tokens are one group if the file has no groups.
    """

    def read(root: Table | Mapping[Any, object], source: Source) -> Batch:
        table = as_table(root)
        table = table.convert(lambda fields: to_verl(fields, source.path))
        table = replace(
            table,
            info={"old_log_probs_source": "a pass of its own", **table.info},
            facts={"mask_source": mask_source},
        )
        return batch_from_table(table.with_prompt_groups(), source)

    return read


_TRL_NAMES = {
    "sampling_per_token_logps": "rollout_log_probs",
    "old_per_token_logps": "old_log_probs",
    "ref_per_token_logps": "ref_log_probs",
    "advantages": "advantages",  # of subclasses; else one per sample
}


def trl_fields(fields: Mapping[str, Any], source: object) -> dict[str, list[Tensor]]:
    """Return the fields of TRL's completions under verl's names, unpadded.

    `completion_mask` marks what the model wrote, except where `tool_mask` is 0: those
    tokens are the output of tools.
    """
    completions = FieldReader(fields, source, "completion_ids")
    real = completions.required_token_rows("completion_mask")
    tools = completions.token_rows("tool_mask")
    mask = real if tools is None else [a * b for a, b in zip(real, tools, strict=True)]
    log_probs = {
        ours: completions.token_rows(theirs) for theirs, ours in _TRL_NAMES.items()
    }
    parts = {"responses": completions.tokens.rows(), "response_mask": mask, **log_probs}
    sizes = [mask_end(row) for row in real]
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
    verified="written with TRL 1.16.0 and vLLM 0.32.0 in its process, on a CPU",
)


_OPENRLHF_NAMES = {
    "rollout_log_probs": "rollout_log_probs",
    "action_log_probs": "old_log_probs",
    "base_action_log_probs": "ref_log_probs",
    "advantages": "advantages",
}


OPENRLHF = Format(
    name="the fields of Experience",
    framework="OpenRLHF",
    files=("*.pt", "*.npz", "*.safetensors"),
    keys=("sequences", "action_mask"),
    read=trainer_reader(
        "action_mask",
        partial(
            divide_sequences,
            tokens="sequences",
            written="action_mask",
            names=_OPENRLHF_NAMES,
        ),
    ),
    verified="written with OpenRLHF 0.11.2's experience maker, from what vLLM 0.32.0"
    " sampled on a CPU",
)


_AREAL_NAMES = {
    "logprobs": "rollout_log_probs",
    "prox_logp": "old_log_probs",
    "ref_logp": "ref_log_probs",
    "versions": "versions",  # of the weights, one per token
}
_AREAL_MASKS = ("input_ids", "loss_mask", "attention_mask")
_NEXT_TOKEN = ("prox_logp", "ref_logp")  # of the training engine: see `areal_fields`


def areal_fields(fields: Mapping[str, Any], source: object) -> dict[str, list[Tensor]]:
    """Return the fields of AReaL's trajectories under verl's names.

    At each position, AReaL's training engine writes the value of the next token; the
    value at the last position is meaningless.
    """
    known = {*_AREAL_NAMES, *_AREAL_MASKS}
    aligned = {name: fields[name] for name in tuple(fields) if name in known}
    for name in _NEXT_TOKEN:
        if name in aligned:
            aligned[name] = [row[:-1] for row in row_list(aligned[name])]
    return divide_sequences(
        aligned, source, tokens="input_ids", written="loss_mask", names=_AREAL_NAMES
    )


def _read_areal(root: Table | Mapping[Any, object], source: Source) -> Batch:
    """Read a step: AReaL's weights have version s + 1 after the update of step s."""
    batch = trainer_reader("loss_mask", areal_fields)(root, source)
    if batch.step is None:
        return batch
    return replace(batch, meta={TRAINER: batch.step, **batch.meta})


AREAL = Format(
    name="the fields of a rollout batch",
    framework="AReaL",
    files=("*.pt",),
    keys=("input_ids", "loss_mask", "logprobs"),
    read=_read_areal,
    verified="written by the recipe's lines with AReaL 1.0.4's RTensor, on trajectories"
    " made by hand",
)


TINKER = Format(
    name="Tinker's summaries of rollouts",
    framework="Tinker",
    files=("*_rollout_summaries.jsonl",),
    keys=("steps", "trajectory_metrics", "final_ob_len"),
    reason="lengths and rewards, without log-probs",
    advice="Add the lines to the trainer that `rounddiag recipe tinker` prints.",
)

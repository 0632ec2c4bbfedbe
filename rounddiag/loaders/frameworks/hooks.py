"""What a line pasted into a trainer saves, under the trainer's own names."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.trainer_fields import (
    areal_fields,
    openrlhf_fields,
    trl_fields,
)
from rounddiag.loaders.records.sample_records import SAME_PROMPT, prompt_group
from rounddiag.loaders.tables.arrays import table_of
from rounddiag.loaders.tables.table import Table, Watched, batch_from_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rounddiag.batch import Batch
    from rounddiag.loaders.frameworks.trainer_fields import Fields
    from rounddiag.loaders.source import Source


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

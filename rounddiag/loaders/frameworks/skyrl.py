"""What SkyRL dumps of each step: `global_step_{N}_training_input.pkl`."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rounddiag.loaders.fields.mapping import batch_from_fields
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.skyrl_input import training_input
from rounddiag.loaders.frameworks.skyrl_rows import RESPONSE, columns, divided, single
from rounddiag.loaders.left_out import told_left_out
from rounddiag.loaders.records.sample_records import SAME_PROMPT, prompt_group
from rounddiag.loaders.screens.placing import with_screenshots

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.loaders.frameworks.skyrl_input import TrainingInput
    from rounddiag.loaders.pickles.inert import Node
    from rounddiag.loaders.source import Source
    from rounddiag.loaders.tensors.stored import StoredTensor

_STEP = re.compile(r"global_step_(\d{1,18})_")
_AGAIN = "Save the whole TrainingInputBatch, as `trainer.dump_data_batch=true` does."
_NEEDED = {
    "sequences": _AGAIN,
    "attention_mask": _AGAIN,
    "response_mask": _AGAIN,
    "loss_mask": _AGAIN,
    "rollout_logprobs": "Let the sampler return them"
    " (`generator.sampling_params.logprobs=1`), and dump again.",
    "action_log_probs": "SkyRL skips this forward pass where the loss does not read it"
    " (`trainer.algorithm.policy_loss_type` of `rollout_is` or `dppo`): choose another"
    " loss, and dump again.",
}
_IMAGES = ("pixel_values", "image_grid_thw")
_STEPS = {"trajectory_ids", "is_last_step"}  # columns of rows that are steps


def read_skyrl(node: Node, source: Source) -> Batch:
    """Build a batch from a pickled TrainingInputBatch.

    `response_mask` says which tokens are the response, and the `loss_mask` in it what
    the model wrote: a sample that SkyRL took out of the loss has no rounds. Rows that
    pad the batch are dropped and counted. Where SkyRL notes no groups, samples with the
    same prompt tokens are one, unless they have images or are steps.

    Raises
    ------
    LoadError
        If a field is missing or None, or the fields do not fit together.
    """
    given = training_input(node, source)
    for name, advice in _NEEDED.items():
        given.require(name, advice)
    fields, table = divided(given), columns(given)
    groups, told = _groups(given, table, fields["prompts"])
    batch = batch_from_fields(
        fields, source=source.path, columns={**table, **groups}, info=_info(given)
    )
    batch = replace(batch, meta={**batch.meta, **_meta(given), **told})
    images = _images(given)[: len(batch)]
    return with_screenshots(batch, images, source) if images else batch


def _groups(
    given: TrainingInput, table: dict[str, Sequence[object]], prompts: list[Tensor]
) -> tuple[dict[str, Sequence[object]], dict[str, str]]:
    """Return the groups, where there are any, and what to tell of them."""
    for name in ("uids", "policy_prompt"):
        if name in table:
            return {"uid": table.pop(name)}, {}
    if given.lists or _STEPS & table.keys():
        return {}, {}
    return {"uid": [prompt_group(row) for row in prompts]}, SAME_PROMPT


def _plain(given: TrainingInput) -> dict[str, object]:
    """Return the plain values of the metadata."""
    plain = str | int | float
    return {k: v for k, v in given.metadata.items() if isinstance(v, plain)}


def _info(given: TrainingInput) -> dict[str, object]:
    step = _STEP.search(given.source.path.name)
    return {
        **_plain(given),
        "old_log_probs_source": "a pass of its own",
        "step": int(step[1]) if step else None,
    }


def _meta(given: TrainingInput) -> dict[str, object]:
    """Return what SkyRL notes, and what was left out."""
    known = {*_NEEDED, *RESPONSE, *_IMAGES, *single(given)}
    return {
        "metadata": _plain(given),
        "num_dropped_rows": given.num_padding,
        **told_left_out({*given.tensors, *given.lists} - known),
    }


def _images(given: TrainingInput) -> list[dict[str, StoredTensor]]:
    """Return pixel values and grids, by name, of each row; nothing without both."""
    found = [given.lists[name] for name in _IMAGES if name in given.lists]
    if len(found) != len(_IMAGES):
        return []
    if any(len(rows) != given.num_rows for rows in found):
        raise given.misfit(
            key=_IMAGES[0],
            expected=f"{given.num_rows} tensors, as there are rows",
            found=f"{len(found[0])}, and {len(found[1])} grids",
        )
    return [dict(zip(_IMAGES, row, strict=True)) for row in zip(*found, strict=True)]


SKYRL = Format(
    name="training input",
    framework="SkyRL",
    files=("*_training_input.pkl",),
    keys=("_rebuild_tensor_batch",),
    read=read_skyrl,
    verified="written by SkyRL 0.3.0",
)
SKYRL_0_1 = Format(
    name="training input, older layout",
    framework="SkyRL",
    files=("*_training_input.pkl",),
    keys=("TrainingInputBatch",),
    read=read_skyrl,
    verified="written by SkyRL 0.1.0",
)

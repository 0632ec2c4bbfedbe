"""SkyRL's training input of a step: `global_step_{N}_training_input.pkl`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.loaders.fields import aliases_of, names_where
from rounddiag.loaders.format import Format
from rounddiag.loaders.pickle.placeholders import Node, TextBytes
from rounddiag.loaders.source import Source, Span, damage_error
from rounddiag.loaders.stored import (
    DTYPES,
    StoredArray,
    as_span,
    contiguous,
    integers,
    scalar_value,
    stored_tensor,
)
from rounddiag.loaders.tables import Table, batch_from_table, table_of
from rounddiag.loaders.torch_file import read_torch
from rounddiag.text.json_text import object_in
from rounddiag.wording import format_names

# Fields of the response, and their names in verl.
_NAMES = {
    "loss_mask": "loss_mask",
    "rollout_logprobs": "rollout_log_probs",
    "action_log_probs": "old_log_probs",
    "base_action_log_probs": "ref_log_probs",
    "advantages": "advantages",
    "rewards": "rm_scores",
}
_NEEDED = ("sequences", "attention_mask", "response_mask", "loss_mask")
_IMAGES = ("pixel_values", "image_grid_thw")
_STEPS = {"trajectory_ids", "is_last_step"}  # columns of rows that are steps
_GROUPS = ("uids", "policy_prompt")
_BOUNDARIES = "_boundaries"
_STEP = re.compile(r"global_step_(\d{1,18})_")
_DAMAGED = "Dump it again: it is damaged, or was changed."
_AGAIN = "Save the whole TrainingInputBatch, as `trainer.dump_data_batch=true` does."
_FACTS = {alias for name in names_where(scope="batch") for alias in aliases_of(name)}


def read_skyrl(node: Node, source: Source) -> Batch:
    """Build a batch from a pickled TrainingInputBatch.

    - `response_mask` marks the response; within it, `loss_mask` marks what the model
      wrote. A sample that SkyRL removed from the loss has no rounds.
    - Rows that pad the batch are dropped and counted.
    - If the file has no groups, samples with the same prompt tokens are one group,
      unless they have images or are steps.
    """
    stored, metadata = _parts(node)
    tensors = {k: v for k, v in stored.items() if isinstance(v, StoredArray)}
    lists = {k: v for k, v in stored.items() if isinstance(v, list)}
    for name in (*_NEEDED, *_NAMES):
        if stored.get(name, node) is None:
            raise damage_error(found=f"`{name}` in none of SkyRL's formats")
    for name in _NEEDED:
        if name not in tensors:
            content = f"only {format_names(tensors)}"
            raise source.error(
                key=name, expected="a tensor", found=content, advice=_AGAIN
            )
    before = _check_shapes(tensors, source)
    size = tensors["sequences"].shape[0]
    num_rows = size - _num_padding(tensors, metadata, source)
    rows = {
        name: tensor.rows(0, num_rows) if tensor.shape[:1] == (size,) else tensor
        for name, tensor in tensors.items()
    }
    columns = _columns(metadata, size, num_rows)
    plain = {k: v for k, v in metadata.items() if isinstance(v, str | int | float)}
    step = _STEP.search(source.path.name)
    info = {
        **{name: value for name, value in plain.items() if name in _FACTS},
        "old_log_probs_source": "a pass of its own",
        "step": int(step[1]) if step else None,
    }
    table = table_of(rows, columns=columns).convert(partial(_fields, before=before))
    table = _with_groups(table, has_images=bool(lists))
    images = _images(lists, size, source)[:num_rows]
    unread = {*stored} - {*tensors} - ({*_IMAGES} if images else set())
    known = {*plain, *columns}
    unread |= {f"metadata.{n}" for n in metadata if not {n, _row_name(n)} & known}
    inputs: Mapping[str, Any] = {"multi_modal_inputs": images} if images else {}
    table = replace(
        table,
        columns={**table.columns, **inputs},
        info={**table.info, **info},
        left_out=[*table.left_out, *unread],
        facts={**table.facts, "metadata": plain, "num_dropped_rows": size - num_rows},
    )
    return batch_from_table(table, source)


def _parts(node: Node) -> tuple[dict[str, object], dict[str, object]]:
    match node:
        case Node(args=(_, {"batch_dict": dict(stored), **facts})):
            metadata = object_in(facts.get("metadata"))
            others = {k: v for k, v in metadata.items() if k != "metrics"}
            entries = {**others, **object_in(metadata.get("metrics"))}
            return (
                {str(key): _field(v) for key, v in stored.items() if v is not None},
                {str(key): scalar_value(value) for key, value in entries.items()},
            )
    raise damage_error(found="a TrainingInputBatch without its tensors")


def _field(value: object) -> StoredArray | list[StoredArray] | None:
    match value:
        case {"format": "tensor_list", "items": list(items)}:
            tensors = [*map(_tensor, items)]
            known = [tensor for tensor in tensors if tensor is not None]
            return known if len(known) == len(tensors) else None
    return _tensor(value)


def _tensor(value: object) -> StoredArray | None:
    """Return a tensor: its bytes, or a file of torch where numpy lacks the dtype."""
    match value:
        case {"format": "torch", "data": Span() | bytes() | TextBytes() as data}:
            return stored_tensor(read_torch(as_span(data)))
        case {
            "data": Span() | bytes() | TextBytes() as data,
            "shape": tuple(shape),
            "dtype": str(dtype),
        } if dtype in DTYPES:
            sizes = integers(shape)
            return contiguous(as_span(data), DTYPES[dtype], sizes)
    return None


def _check_shapes(tensors: Mapping[str, StoredArray], source: Source) -> int:
    """Return the number of columns of a sequence before those of the response."""
    whole, window = (tensors[name].shape for name in ("sequences", "response_mask"))
    named = {name: window for name in _NAMES if name in tensors}
    for name, shape in {"attention_mask": whole, **named}.items():
        if tensors[name].shape != shape:
            raise source.error(
                key=name,
                expected=f"shape {shape}",
                found=f"shape {tensors[name].shape}",
                advice=_DAMAGED,
            )
    match whole, window:
        case (num_rows, width), (same, columns) if (
            num_rows == same and columns <= width
        ):
            return width - columns
    raise source.error(
        key="response_mask",
        expected=f"the last columns of shape {whole}",
        found=f"shape {window}",
        advice=_DAMAGED,
    )


def _num_padding(
    tensors: Mapping[str, StoredArray], metadata: Mapping[str, object], source: Source
) -> int:
    size, num = tensors["sequences"].shape[0], metadata.get("pad_size", 0)
    if not isinstance(num, int) or not 0 <= num <= size:
        raise source.error(
            key="pad_size",
            expected=f"0 to {size}, the rows that pad the batch",
            found=f"{num!r:.40}",
            advice=_DAMAGED,
        )
    if tensors["loss_mask"].rows(size - num, size).read().any():
        raise source.error(
            key="loss_mask",
            expected="0 in the rows that pad the batch",
            found="other values",
            advice=_DAMAGED,
        )
    return num


def _fields(fields: Mapping[str, Any], *, before: int) -> dict[str, list[Tensor]]:
    """Return the fields under verl's names, one row per sample.

    Sequences are padded on the left. Fields of the response cover only their last
    columns, and `response_mask` marks the response in these.
    """
    spans = [_span(row) for row in fields["response_mask"]]
    tokens, real = fields["sequences"], fields["attention_mask"] != 0
    prompts = [
        row[: before + span.start][keep[: before + span.start]]
        for row, keep, span in zip(tokens, real, spans, strict=True)
    ]
    named = {ours: fields[name] for name, ours in _NAMES.items() if name in fields}
    return {
        "prompts": prompts,
        **{
            name: [row[span] for row, span in zip(rows, spans, strict=True)]
            for name, rows in {"responses": tokens[:, before:], **named}.items()
        },
    }


def _span(mask: Tensor) -> slice:
    positions = mask.nonzero()
    if not len(positions):
        return slice(len(mask), len(mask))
    return slice(int(positions[0]), int(positions[-1]) + 1)


def _columns(
    metadata: Mapping[str, object], size: int, num_rows: int
) -> dict[str, Sequence[object]]:
    """Return the metadata with one value per row, without those of padding."""
    columns: dict[str, Sequence[object]] = {}
    for name, value in metadata.items():
        if isinstance(value, list) and name.endswith(_BOUNDARIES):
            columns[_row_name(name)] = _numbers(value, num_rows)
        elif isinstance(value, list) and len(value) == size:
            columns[name] = value[:num_rows]
    return columns


def _row_name(name: str) -> str:
    return name.removesuffix(_BOUNDARIES)


def _numbers(boundaries: list[object], num_rows: int) -> list[int | None]:
    """Return one number per row: boundaries of (0, 2) and (2, 3) give 0, 0, 1."""
    numbers: list[int | None] = []
    for index, pair in enumerate(boundaries):
        match pair:
            case (int(start), int(stop)) if len(numbers) <= start <= stop <= num_rows:
                numbers += [None] * (start - len(numbers)) + [index] * (stop - start)
    return numbers + [None] * (num_rows - len(numbers))


def _with_groups(table: Table, *, has_images: bool) -> Table:
    columns = dict(table.columns)
    for name in _GROUPS:
        if name in columns:
            groups = columns.pop(name)
            return replace(table, columns={**columns, "uid": groups})
    is_apart = has_images or _STEPS & columns.keys()
    return table if is_apart else table.with_prompt_groups()


def _images(
    lists: Mapping[str, list[StoredArray]], size: int, source: Source
) -> list[dict[str, StoredArray]]:
    """Return pixel values and grids, by name, of each row; empty without both."""
    fields = [lists[name] for name in _IMAGES if name in lists]
    if len(fields) != len(_IMAGES):
        return []
    if any(len(rows) != size for rows in fields):
        raise source.error(
            key=_IMAGES[0],
            expected=f"{size} tensors, as there are rows",
            found=f"{len(fields[0])}, and {len(fields[1])} grids",
            advice=_DAMAGED,
        )
    return [dict(zip(_IMAGES, row, strict=True)) for row in zip(*fields, strict=True)]


SKYRL = Format(
    name="training input",
    framework="SkyRL",
    files=("*_training_input.pkl",),
    keys=("_rebuild_tensor_batch",),
    read=read_skyrl,
    verified="written by SkyRL 0.3.0",
)
SKYRL_0_1 = Format(
    name="training input of SkyRL 0.1",
    framework="SkyRL",
    files=SKYRL.files,
    keys=("TrainingInputBatch",),
    reason="a layout that is no longer read",
    advice="Dump the step again with SkyRL 0.3.0: that file opens.",
)

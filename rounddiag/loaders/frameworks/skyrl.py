"""SkyRL's training input of a step: `global_step_{N}_training_input.pkl`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.loaders.assembly.images import with_screenshots
from rounddiag.loaders.field_batch import batch_from_fields
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import object_in
from rounddiag.loaders.pickle.placeholders import Node, TextBytes
from rounddiag.loaders.plain_columns import SAME_PROMPT, prompt_group
from rounddiag.loaders.source import (
    Source,
    Span,
    damage_error,
    format_names,
    left_out_entry,
)
from rounddiag.loaders.stored import (
    DTYPES,
    StoredArray,
    as_span,
    contiguous,
    integers,
    scalar_value,
    stored_tensor,
)
from rounddiag.loaders.torch_file import read_torch


@dataclass(frozen=True, kw_only=True)
class TrainingInput:
    """The content of a training input; `read` leaves out the rows that pad it.

    Attributes
    ----------
    tensors: Fields of one tensor.
    lists: Fields of one tensor per row: pixel values and grids.
    metadata: SkyRL's metadata of the batch, and its metrics, on one level.
    """

    tensors: dict[str, StoredArray]
    lists: dict[str, list[StoredArray]]
    metadata: dict[str, object]
    source: Source

    @property
    def num_rows(self) -> int:
        """Number of rows, padding included."""
        return self.tensors["sequences"].shape[0]

    @property
    def num_padding(self) -> int:
        """Number of rows at the end that pad the batch."""
        size = self.metadata.get("pad_size", 0)
        if isinstance(size, int) and 0 <= size <= self.num_rows:
            return size
        raise self.source.error(
            key="pad_size",
            expected=f"0 to {self.num_rows}, the rows that pad the batch",
            found=f"{size!r:.40}",
            advice=_DAMAGED,
        )

    def read(self, name: str) -> Tensor:
        """Copy a field out of the file, without padding rows."""
        return self.tensors[name].rows(0, self.num_rows - self.num_padding).read()

    def require(self, name: str) -> None:
        """Raise a LoadError where a field is missing or None."""
        if name not in self.tensors:
            raise self.source.error(
                key=name,
                expected="a tensor",
                found=f"only {format_names(self.tensors)}",
                advice=_AGAIN,
            )


def _training_input(node: Node, source: Source) -> TrainingInput:
    """Return the parts of a pickled TrainingInputBatch, in either of its layouts."""
    match node:
        case Node(args=(_, {"batch_dict": dict(stored), **facts})):
            pass
        case Node(state={"batch_dict": dict(stored), **facts}):
            pass
        case _:
            raise damage_error(found="a TrainingInputBatch without its tensors")
    fields = {str(key): _field(v) for key, v in stored.items() if v is not None}
    return TrainingInput(
        tensors={k: v for k, v in fields.items() if isinstance(v, StoredArray)},
        lists={k: v for k, v in fields.items() if isinstance(v, list)},
        metadata=_metadata(facts.get("metadata")),
        source=source,
    )


def _field(value: object) -> StoredArray | list[StoredArray]:
    match value:
        case {"format": "tensor_list", "items": list(items)}:
            return [_tensor(item) for item in items]
    return _tensor(value)


def _tensor(value: object) -> StoredArray:
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
    raise damage_error(found="a tensor in none of SkyRL's formats")


def _metadata(stored: object) -> dict[str, object]:
    metadata = object_in(stored)
    everything = {**metadata, **object_in(metadata.get("metrics"))}
    return {str(key): scalar_value(value) for key, value in everything.items()}


# Fields of the response, and their names in verl.
_RESPONSE_NAMES = {
    "loss_mask": "loss_mask",
    "rollout_logprobs": "rollout_log_probs",
    "action_log_probs": "old_log_probs",
    "base_action_log_probs": "ref_log_probs",
    "advantages": "advantages",
    "rewards": "rm_scores",
}
_BOUNDARIES = "_boundaries"


def _response_fields(inputs: TrainingInput) -> dict[str, list[Tensor]]:
    """Return the fields under verl's names, one row per sample.

    Sequences are padded on the left. Fields of the response cover only their last
    columns, and `response_mask` marks the response in these: at the end, or at the
    start in SkyRL 0.1.
    """
    named = {
        key: name for key, name in _RESPONSE_NAMES.items() if key in inputs.tensors
    }
    before = _check_shapes(inputs, named)
    _check_padding(inputs)
    spans = [_span(row) for row in inputs.read("response_mask")]
    tokens, real = inputs.read("sequences"), inputs.read("attention_mask") != 0
    starts = [before + span.start for span in spans]
    parts = {"responses": tokens[:, before:]}
    parts |= {name: inputs.read(key) for key, name in named.items()}
    return {
        "prompts": [
            row[:start][keep[:start]]
            for row, keep, start in zip(tokens, real, starts, strict=True)
        ],
        **{
            name: [row[span] for row, span in zip(rows, spans, strict=True)]
            for name, rows in parts.items()
        },
    }


def _check_shapes(inputs: TrainingInput, named: Iterable[str]) -> int:
    """Return the number of columns of a sequence before those of the response."""
    whole, window = (
        inputs.tensors[name].shape for name in ("sequences", "response_mask")
    )
    expected = {"attention_mask": whole, **dict.fromkeys(named, window)}
    for name, shape in expected.items():
        if inputs.tensors[name].shape != shape:
            raise inputs.source.error(
                key=name,
                expected=f"shape {shape}",
                found=f"shape {inputs.tensors[name].shape}",
                advice=_DAMAGED,
            )
    match whole, window:
        case (num_rows, width), (same, columns) if (
            num_rows == same and columns <= width
        ):
            return width - columns
    raise inputs.source.error(
        key="response_mask",
        expected=f"the last columns of shape {whole}",
        found=f"shape {window}",
        advice=_DAMAGED,
    )


def _check_padding(inputs: TrainingInput) -> None:
    start = inputs.num_rows - inputs.num_padding
    if inputs.tensors["loss_mask"].rows(start, inputs.num_rows).read().any():
        raise inputs.source.error(
            key="loss_mask",
            expected="0 in the rows that pad the batch",
            found="other values",
            advice=_DAMAGED,
        )


def _span(mask: Tensor) -> slice:
    """Return the span of a response; an empty one is at the end."""
    positions = mask.nonzero()
    if not len(positions):
        return slice(len(mask), len(mask))
    return slice(int(positions[0]), int(positions[-1]) + 1)


def _row_columns(inputs: TrainingInput) -> dict[str, Sequence[object]]:
    """Return the columns with one value per row, without padding rows."""
    num_rows = inputs.num_rows - inputs.num_padding
    columns: dict[str, Sequence[object]] = {
        name: inputs.read(name).tolist() for name in _per_row_names(inputs)
    }
    for name, value in inputs.metadata.items():
        if isinstance(value, list) and name.endswith(_BOUNDARIES):
            columns[name.removesuffix(_BOUNDARIES)] = _numbers(value, num_rows)
        elif isinstance(value, list) and len(value) == inputs.num_rows:
            columns[name] = value[:num_rows]
    return columns


def _per_row_names(inputs: TrainingInput) -> list[str]:
    """Return the names of the fields with one value per row."""
    shape = (inputs.num_rows,)
    return [name for name, tensor in inputs.tensors.items() if tensor.shape == shape]


def _numbers(boundaries: list[object], num_rows: int) -> list[int | None]:
    """Return one number per row: boundaries of (0, 2) and (2, 3) give 0, 0, 1."""
    numbers: list[int | None] = []
    for index, pair in enumerate(boundaries):
        match pair:
            case (int(start), int(stop)) if len(numbers) <= start <= stop <= num_rows:
                numbers += [None] * (start - len(numbers)) + [index] * (stop - start)
    return numbers + [None] * (num_rows - len(numbers))


_STEP = re.compile(r"global_step_(\d{1,18})_")
_DAMAGED = "Dump it again: it is damaged, or was changed."
_AGAIN = "Save the whole TrainingInputBatch, as `trainer.dump_data_batch=true` does."
_NEEDED = ("sequences", "attention_mask", "response_mask", "loss_mask")
_IMAGES = ("pixel_values", "image_grid_thw")
_STEPS = {"trajectory_ids", "is_last_step"}  # columns of rows that are steps


def read_skyrl(node: Node, source: Source) -> Batch:
    """Build a batch from a pickled TrainingInputBatch.

    - `response_mask` marks the response; within it, `loss_mask` marks what the model
      wrote. A sample that SkyRL removed from the loss has no rounds.
    - Rows that pad the batch are dropped and counted.
    - If the file has no groups, samples with the same prompt tokens are one group,
      unless they have images or are steps.
    """
    inputs = _training_input(node, source)
    for name in _NEEDED:
        inputs.require(name)
    fields, table = _response_fields(inputs), _row_columns(inputs)
    groups, origin = _groups(inputs, table, fields["prompts"])
    batch = batch_from_fields(
        fields, source=source.path, columns={**table, **groups}, info=_info(inputs)
    )
    batch = replace(batch, meta={**batch.meta, **_meta(inputs), **origin})
    images = _images(inputs)[: len(batch)]
    return with_screenshots(batch, images, source) if images else batch


def _groups(
    inputs: TrainingInput, table: dict[str, Sequence[object]], prompts: list[Tensor]
) -> tuple[dict[str, Sequence[object]], dict[str, str]]:
    """Return the groups, if there are any, and a note on their origin for `meta`."""
    for name in ("uids", "policy_prompt"):
        if name in table:
            return {"uid": table.pop(name)}, {}
    if inputs.lists or _STEPS & table.keys():
        return {}, {}
    return {"uid": [prompt_group(row) for row in prompts]}, SAME_PROMPT


def _plain(inputs: TrainingInput) -> dict[str, object]:
    """Return the plain values of the metadata."""
    plain = str | int | float
    return {k: v for k, v in inputs.metadata.items() if isinstance(v, plain)}


def _info(inputs: TrainingInput) -> dict[str, object]:
    step = _STEP.search(inputs.source.path.name)
    return {
        **_plain(inputs),
        "old_log_probs_source": "a pass of its own",
        "step": int(step[1]) if step else None,
    }


def _meta(inputs: TrainingInput) -> dict[str, object]:
    """Return SkyRL's metadata, and the names of fields left out."""
    known = {*_NEEDED, *_RESPONSE_NAMES, *_IMAGES, *_per_row_names(inputs)}
    return {
        "metadata": _plain(inputs),
        "num_dropped_rows": inputs.num_padding,
        **left_out_entry({*inputs.tensors, *inputs.lists} - known),
    }


def _images(inputs: TrainingInput) -> list[dict[str, StoredArray]]:
    """Return pixel values and grids, by name, of each row; empty without both."""
    fields = [inputs.lists[name] for name in _IMAGES if name in inputs.lists]
    if len(fields) != len(_IMAGES):
        return []
    if any(len(rows) != inputs.num_rows for rows in fields):
        raise inputs.source.error(
            key=_IMAGES[0],
            expected=f"{inputs.num_rows} tensors, as there are rows",
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
SKYRL_0_1 = replace(
    SKYRL,
    name="training input, older layout",
    keys=("TrainingInputBatch",),
    verified="written by SkyRL 0.1.0",
)

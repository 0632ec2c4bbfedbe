"""The jagged layout: padded tensors or rows to flat tensors with offsets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch.sequence_difference import index_of
from rounddiag.batch.turns import as_turns
from rounddiag.columns.sources import array_tensor, build_offsets
from rounddiag.errors import BatchError
from rounddiag.schema import ORIGINAL_SAMPLE

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from rounddiag.batch.batch import Batch

    AnyBatch = TypeVar("AnyBatch", bound=Batch)

SampleIndex: TypeAlias = int | slice | Sequence[int] | Array | Tensor
REWARD_SCALE = "reward_scale"  # an entry of `meta`
PAIR = ("rollout_log_probs", "old_log_probs")
_INTEGERS = (
    *("response_ids", "response_mask", "loss_mask", "round_ids", "prompt_ids"),
    "pieces",
)
# Mappings of a name to one value per position.
POSITION_TABLES = ("scores", "token_columns")
# Fields that are a tuple with one entry per sample.
PER_SAMPLE = (
    *("group_ids", "sample_ids", "images", "position_ids", "rollout_ids"),
    "turns",
)
PER_TOKEN = (
    *("response_ids", "response_mask", *PAIR),
    *("entropy", "advantages", "loss_mask", "round_ids", "pieces"),
)


def as_tensor(name: str, value: Any) -> Tensor:  # noqa: ANN401 a tensor, or numbers
    """Return a tensor, an array or lists of numbers as a plain tensor.

    Examples
    --------
    >>> as_tensor("response_ids", [[5, 6]])
    tensor([[5, 6]])
    """
    try:
        is_array = isinstance(value, np.ndarray)
        tensor = array_tensor(value) if is_array else torch.as_tensor(value)
        tensor = tensor.resolve_neg() if tensor.is_neg() else tensor
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise BatchError.build(
            key=name,
            expected="a tensor, an array or lists of numbers",
            found=f"a {type(value).__name__}: {error!s:.80}",
            advice="Pass rows of different lengths to `Batch.from_rows`.",
        ) from error
    require_plain(name, tensor)
    # An empty list has no dtype.
    is_untyped = not tensor.numel() and isinstance(value, list | tuple)
    return tensor.long() if is_untyped and name in _INTEGERS else tensor


def require_plain(name: str, tensor: object) -> None:
    """Raise a BatchError unless it is a dense tensor whose values are in memory."""
    kind = f"a {type(tensor).__name__}"
    if isinstance(tensor, torch.Tensor):
        if tensor.is_nested:
            kind = "a nested tensor"
        elif tensor.layout != torch.strided:
            kind = f"a tensor of layout {tensor.layout}"
        elif tensor.is_meta or tensor.is_quantized:
            kind = f"a tensor of {tensor.dtype} on {tensor.device}"
        elif tensor.is_neg():
            kind = "a tensor with torch's negative bit"
        else:
            return
    raise BatchError.build(
        key=name,
        expected="a dense tensor with its values in memory",
        found=kind,
        advice="Pass `list(tensor.unbind())` of a nested tensor to `Batch.from_rows`,"
        " and `tensor.to_dense()` of a sparse one; `tensor.resolve_neg()` removes a"
        " negative bit.",
    )


def from_padded(values: Any, others: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 numbers
    """Turn padded fields into the fields of a Batch."""
    _require_tokens(others)
    mask = as_tensor("response_mask", values)
    if mask.dim() != 2:  # noqa: PLR2004 rows and positions
        raise BatchError.build(
            key="response_mask",
            expected="two dimensions, samples and positions",
            found=f"shape {tuple(mask.shape)}",
            advice="Stack the samples, or pass them to `Batch.from_rows`.",
        )
    num_samples, width = mask.shape
    ends = torch.full((num_samples,), width, device=mask.device)
    fields = _flatten_per_token(
        {"response_mask": mask, **others},
        lambda name, value: _flatten(name, value, (num_samples, width)),
    )
    for name in ("lengths", "prompt_ids", "prompt_mask"):
        if fields.get(name) is not None:
            fields[name] = as_tensor(name, fields[name])
    if fields.get("lengths") is None:
        fields["lengths"] = ends
    is_prompt = fields.pop("prompt_mask", None)
    if fields.get("prompt_ids") is not None:
        fields.update(_unpad_prompts(fields["prompt_ids"], is_prompt))
    return {**fields, "offsets": build_offsets(ends)}


def from_rows(values: Sequence[Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Turn rows of different lengths into the fields of a Batch."""
    _require_tokens(others)
    mask = _as_rows("response_mask", values)
    lengths = torch.tensor([len(row) for row in mask], dtype=torch.int64)
    fields = _flatten_per_token(
        {"response_mask": mask, **others},
        lambda name, rows: _concatenate(name, rows, lengths.tolist()),
    )
    if fields.get("turns") is not None:
        fields["turns"] = as_turns(fields["turns"])
    if fields.get("prompt_ids") is not None:
        rows = _as_rows("prompt_ids", fields["prompt_ids"])
        sizes = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        fields["prompt_ids"] = _concatenate("prompt_ids", rows, sizes.tolist())
        fields["prompt_offsets"] = build_offsets(sizes)
    return {**fields, "lengths": lengths, "offsets": build_offsets(lengths)}


def _require_tokens(others: Mapping[str, Any]) -> None:
    if others.get("response_ids") is None and others.get("pieces") is None:
        raise BatchError.build(
            key="response_ids",
            expected="a tensor",
            found="nothing",
            advice="A batch needs `response_mask` and `response_ids`; build one of"
            " texts alone with `Batch.from_turns`.",
        )


def _flatten_per_token(
    fields: Mapping[str, Any], flatten: Callable[[str, Any], Tensor]
) -> dict[str, Any]:
    result = {
        name: flatten(name, value) if name in PER_TOKEN and value is not None else value
        for name, value in fields.items()
    }
    if fields.get("rewards") is not None:
        result["rewards"] = as_tensor("rewards", fields["rewards"])
    for table in POSITION_TABLES:
        values = fields.get(table) or {}
        result[table] = {name: flatten(name, value) for name, value in values.items()}
    return result


def _flatten(name: str, value: Any, shape: tuple[int, int]) -> Tensor:  # noqa: ANN401 numbers
    tensor = as_tensor(name, value)
    if tuple(tensor.shape) != shape:
        raise BatchError.build(
            key=name,
            expected=f"shape {shape}, as `response_mask`",
            found=f"shape {tuple(tensor.shape)}",
            advice="Cut every field to the response before building the batch.",
        )
    return tensor.reshape(-1)


def _as_rows(name: str, rows: Sequence[Any]) -> list[Tensor]:
    return [as_tensor(name, row) for row in rows]


def _concatenate(name: str, values: Sequence[Any], lengths: Sequence[int]) -> Tensor:
    rows = _as_rows(name, values)
    shapes = [tuple(row.shape) for row in rows]
    if shapes != [(length,) for length in lengths]:
        raise BatchError.build(
            key=name,
            expected=f"{len(lengths)} rows as long as those of `response_mask`",
            found=_first_mismatch(shapes, lengths),
            advice="Cut every field to the response before building the batch.",
        )
    if rows:
        return torch.cat(rows)
    return torch.empty(0, dtype=torch.int64 if name in _INTEGERS else torch.float32)


def _first_mismatch(shapes: list[tuple[int, ...]], lengths: Sequence[int]) -> str:
    if len(shapes) != len(lengths):
        return f"{len(shapes)} rows"
    pairs = enumerate(zip(shapes, lengths, strict=True))
    index, (shape, length) = next(p for p in pairs if p[1][0] != (p[1][1],))
    return f"shape {shape} in row {index}, where `response_mask` has {length} values"


def _unpad_prompts(ids: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
    keep = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask != 0
    return {"prompt_ids": ids[keep], "prompt_offsets": build_offsets(keep.sum(1))}


def selected_rows(index: SampleIndex, num_samples: int) -> Tensor:
    """Return the sample numbers that an integer, a slice or a list selects."""
    rows = torch.arange(num_samples)
    if isinstance(index, np.integer):  # such as a value of a frame
        index = int(index)
    if isinstance(index, int):
        return rows[index].reshape(-1)
    try:
        if isinstance(index, slice):  # torch refuses steps below 1
            return rows[index]
        wanted = torch.as_tensor(index).cpu()
        return rows[wanted if len(wanted) else wanted.long()]
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise BatchError.build(
            expected=f"sample numbers below {num_samples}",
            found=f"{index!r:.80}",
            advice="Pass an integer, a slice or a list of integers.",
        ) from error


def marked_rows(keep: Sequence[bool] | Array | Tensor, num_samples: int) -> Tensor:
    """Return the numbers of the samples whose flag is true."""
    index = getattr(keep, "index", None)  # of a pandas Series; that of a list is called
    if not callable(index) and index is not None and [*index] != [*range(num_samples)]:
        raise BatchError.build(
            expected="flags in the order of the samples",
            found="a Series whose index is not 0 to n - 1",
            advice="Pass `series.sort_index()`, or sample numbers to `batch[...]`.",
        )
    try:
        values = keep if isinstance(keep, torch.Tensor) else np.asarray(keep).tolist()
        flags = torch.as_tensor(values).cpu()
        is_flag = bool(((flags == 0) | (flags == 1)).all())
    except (RuntimeError, TypeError, ValueError):
        is_flag = False
    if not is_flag:
        raise BatchError.build(
            expected=f"{num_samples} flags, True or False",
            found=f"{keep!r:.80}",
            advice="Pass sample numbers to `batch[...]` instead.",
        )
    if tuple(flags.shape) != (num_samples,):
        raise BatchError.build(
            expected=f"{num_samples} flags, one per sample",
            found=f"shape {tuple(flags.shape)}",
            advice="Compare a column that has one value per sample.",
        )
    return flags.nonzero()[:, 0]


def select(batch: AnyBatch, rows: Tensor) -> AnyBatch:
    """Return some samples as a batch, renumbered from 0.

    The column `original_sample` keeps their numbers in the first batch. Results of
    checks are dropped, because they refer to the old numbers.
    """
    index = rows.tolist()
    per_sample: dict[str, Any] = {
        name: tuple(value[i] for i in index)
        for name in PER_SAMPLE
        if (value := getattr(batch, name)) is not None
    }
    on_device = rows.to(batch.offsets.device)
    return replace(
        batch,
        **map_positions(batch, lambda _, flat: take_rows(flat, batch.offsets, rows)),
        **per_sample,
        **_prompts(batch, rows),
        offsets=build_offsets(batch.offsets.diff()[on_device]),
        lengths=batch.lengths[on_device],
        rewards=None if batch.rewards is None else batch.rewards[on_device],
        contexts=batch.contexts and batch.contexts.select(rows.numpy()),
        sample_columns=_sample_columns(batch, rows.numpy()),
        round_columns=_round_columns(batch.round_columns, rows.numpy()),
        meta={
            **({} if batch.rewards is None else {REWARD_SCALE: reward_scale(batch)}),
            **{name: value for name, value in batch.meta.items() if name != "checks"},
        },
    )


def reward_scale(batch: Batch) -> list[float]:
    """Return the rewards of failure and success: those that a batch states, or has.

    Empty where other rewards than 0 and 1, or than -1 and 1, are in the batch that this
    one was selected from.
    """
    stated = batch.meta.get(REWARD_SCALE)
    if isinstance(stated, list) and all(isinstance(v, int | float) for v in stated):
        return stated
    rewards = torch.tensor([]) if batch.rewards is None else batch.rewards.double()
    present = {*rewards[rewards.isfinite()].tolist()}
    scales = ([0.0, 1.0], [-1.0, 1.0])
    return next((scale for scale in scales if present and present <= {*scale}), [])


def map_positions(
    batch: Batch, convert: Callable[[str, Tensor], Tensor]
) -> dict[str, Any]:
    """Convert every field with one value per position, by its name and values."""
    fields: dict[str, Any] = {
        name: convert(name, flat) for name, flat in batch.per_token.items()
    }
    for table in POSITION_TABLES:
        columns: Mapping[str, Tensor] = getattr(batch, table)
        fields[table] = {name: convert(name, flat) for name, flat in columns.items()}
    return fields


def take_rows(flat: Tensor, offsets: Tensor, rows: Tensor) -> Tensor:
    """Take some rows of a flat tensor; consecutive rows are a view.

    Examples
    --------
    >>> take_rows(torch.arange(5), torch.tensor([0, 2, 3, 5]), torch.tensor([2, 0]))
    tensor([3, 4, 0, 1])
    """
    if len(rows) == 0:
        return flat[:0]
    limits = offsets.tolist()
    index = rows.tolist()
    if index == list(range(index[0], index[0] + len(index))):
        return flat[limits[index[0]] : limits[index[-1] + 1]]
    return torch.cat([flat[limits[i] : limits[i + 1]] for i in index])


def real_rows(batch: Batch, flat: Tensor) -> list[Tensor]:
    """Return the values of each row without padding, as views."""
    pairs = zip(batch.offsets[:-1].tolist(), batch.lengths.tolist(), strict=True)
    return [flat[start : start + length] for start, length in pairs]


def move(batch: AnyBatch, device: str | torch.device) -> AnyBatch:
    """Return the batch with every tensor on `device`."""
    tensors: dict[str, Any] = {
        entry.name: value.to(device)
        for entry in fields(batch)
        if isinstance(value := getattr(batch, entry.name), torch.Tensor)
    }
    flat = map_positions(batch, lambda _, values: values.to(device))
    return replace(batch, **{**tensors, **flat})


def _prompts(batch: Batch, rows: Tensor) -> dict[str, Any]:
    if batch.prompt_ids is None or batch.prompt_offsets is None:
        return {}
    sizes = batch.prompt_offsets.diff()[rows.to(batch.prompt_offsets.device)]
    return {
        "prompt_ids": take_rows(batch.prompt_ids, batch.prompt_offsets, rows),
        "prompt_offsets": build_offsets(sizes),
    }


def _sample_columns(batch: Batch, rows: Array) -> dict[str, Array]:
    columns = {ORIGINAL_SAMPLE.name: np.arange(batch.num_samples, dtype=np.int32)}
    return {k: v[rows] for k, v in {**columns, **batch.sample_columns}.items()}


def _round_columns(columns: Mapping[str, Array], rows: Array) -> dict[str, Array]:
    if not columns:
        return {}
    order = np.argsort(columns["sample"], kind="stable")
    own = np.searchsorted(columns["sample"][order], np.stack([rows, rows + 1], axis=1))
    keep = order[index_of(own)]
    renumbered = np.repeat(np.arange(len(rows)), own[:, 1] - own[:, 0])
    chosen = {name: values[keep] for name, values in columns.items()}
    return {**chosen, "sample": renumbered.astype(columns["sample"].dtype)}

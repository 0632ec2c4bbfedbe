"""The jagged layout: padded tensors and rows become flat tensors with offsets."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.errors import BatchError
from rounddiag.schema import ORIGINAL_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor
    from typing_extensions import TypeVar

    from rounddiag._typing import Array
    from rounddiag.batch.batch import Batch

    AnyBatch = TypeVar("AnyBatch", bound=Batch)
    Index = int | slice | Sequence[int] | Array | Tensor


REQUIRED = ("response_ids", "response_mask", "rollout_log_probs", "old_log_probs")
_INTEGERS = ("response_ids", "response_mask", "loss_mask", "round_ids", "prompt_ids")
# Fields that are a tuple with one entry a sample.
PER_SAMPLE = ("group_ids", "sample_ids", "images", "position_ids", "rollout_ids")
PER_TOKEN = (*REQUIRED, "entropy", "advantages", "loss_mask", "round_ids")


def offsets_of(lengths: Tensor) -> Tensor:
    """Return where each row starts when rows of these lengths stand end to end.

    Examples
    --------
    >>> offsets_of(torch.tensor([3, 0, 2]))
    tensor([0, 3, 3, 5])
    """
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def from_padded(response_ids: Tensor, others: Mapping[str, Any]) -> dict[str, Any]:
    """Turn padded fields into the fields of a Batch."""
    check_present(others)
    if response_ids.dim() != 2:  # noqa: PLR2004 rows and positions
        raise BatchError.build(
            key="response_ids",
            expected="two dimensions, samples and positions",
            found=f"shape {tuple(response_ids.shape)}",
            advice="Stack the samples, or pass them to `Batch.from_rows`.",
        )
    num_samples, width = response_ids.shape
    ends = torch.full((num_samples,), width, device=response_ids.device)
    done = _per_token(
        {"response_ids": response_ids, **others},
        lambda name, value: _flat(name, value, (num_samples, width)),
    )
    if done.get("lengths") is None:
        done["lengths"] = ends
    if done.get("prompt_ids") is not None:
        mask = done.pop("prompt_mask", None)
        done.update(_unpadded_prompts(done["prompt_ids"], mask))
    return {**done, "offsets": offsets_of(ends)}


def from_rows(
    response_ids: Sequence[Tensor], others: Mapping[str, Any]
) -> dict[str, Any]:
    """Turn rows of different lengths into the fields of a Batch."""
    check_present(others)
    lengths = torch.tensor([len(row) for row in response_ids], dtype=torch.int64)
    done = _per_token(
        {"response_ids": response_ids, **others},
        lambda name, rows: _joined(name, rows, lengths.tolist()),
    )
    if done.get("prompt_ids") is not None:
        rows = done["prompt_ids"]
        sizes = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        done["prompt_ids"] = _joined("prompt_ids", rows, sizes.tolist())
        done["prompt_offsets"] = offsets_of(sizes)
    return {**done, "lengths": lengths, "offsets": offsets_of(lengths)}


def check_present(others: Mapping[str, Any]) -> None:
    """Raise a BatchError when a required field is missing."""
    for name in REQUIRED[1:]:
        if others.get(name) is None:
            raise BatchError.build(
                key=name,
                expected="a tensor",
                found="nothing",
                advice="A batch needs `" + "`, `".join(REQUIRED) + "`.",
            )


def _per_token(
    fields: Mapping[str, Any], flatten: Callable[[str, Any], Tensor]
) -> dict[str, Any]:
    done = {
        name: flatten(name, value) if name in PER_TOKEN and value is not None else value
        for name, value in fields.items()
    }
    scores = fields.get("scores") or {}
    done["scores"] = {name: flatten(name, value) for name, value in scores.items()}
    return done


def _flat(name: str, tensor: Tensor, shape: tuple[int, int]) -> Tensor:
    if tuple(tensor.shape) != shape:
        raise BatchError.build(
            key=name,
            expected=f"shape {shape}, as `response_ids`",
            found=f"shape {tuple(tensor.shape)}",
            advice="Slice every field to the response before building the batch.",
        )
    return tensor.reshape(-1)


def _joined(name: str, rows: Sequence[Tensor], lengths: Sequence[int]) -> Tensor:
    found = [tuple(row.shape) for row in rows]
    if found != [(length,) for length in lengths]:
        raise BatchError.build(
            key=name,
            expected=f"{len(lengths)} rows as long as those of `response_ids`",
            found=_first_misfit(found, lengths),
            advice="Slice every field to the response before building the batch.",
        )
    if rows:
        return torch.cat(list(rows))
    return torch.empty(0, dtype=torch.int64 if name in _INTEGERS else torch.float32)


def _first_misfit(found: list[tuple[int, ...]], lengths: Sequence[int]) -> str:
    if len(found) != len(lengths):
        return f"{len(found)} rows"
    pairs = enumerate(zip(found, lengths, strict=True))
    index, (shape, length) = next(p for p in pairs if p[1][0] != (p[1][1],))
    return f"shape {shape} in row {index}, where `response_ids` has {length} tokens"


def _unpadded_prompts(ids: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
    keep = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask != 0
    return {"prompt_ids": ids[keep], "prompt_offsets": offsets_of(keep.sum(1))}


def chosen(index: Index, num_samples: int) -> Tensor:
    """Return which samples a number, a slice or a list of numbers names.

    Raises
    ------
    BatchError
        If a list holds anything else.
    IndexError
        If one number is of no sample.
    """
    rows = torch.arange(num_samples)
    if isinstance(index, np.integer):  # as a frame has it
        index = int(index)
    if isinstance(index, int | slice):
        return rows[index].reshape(-1)
    try:
        wanted = torch.as_tensor(index).cpu()
        return rows[wanted if len(wanted) else wanted.long()]
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        raise BatchError.build(
            expected=f"numbers of samples below {num_samples}",
            found=f"{index!r:.80}",
            advice="Pass a number, a slice or a list of numbers.",
        ) from error


def marked(keep: Sequence[bool] | Array | Tensor, num_samples: int) -> Tensor:
    """Return which samples one flag per sample marks.

    Raises
    ------
    BatchError
        If there is not one flag per sample.
    """
    flags = torch.as_tensor(keep, dtype=torch.bool)
    if tuple(flags.shape) != (num_samples,):
        raise BatchError.build(
            expected=f"{num_samples} flags, one per sample",
            found=f"shape {tuple(flags.shape)}",
            advice="Compare a column that has one value per sample.",
        )
    return flags.nonzero()[:, 0]


def select(batch: AnyBatch, rows: Tensor) -> AnyBatch:
    """Return the samples of these rows, renumbered from 0.

    The column `original_sample` keeps which sample of the first batch each one was.
    What checks found in that batch is left out: it names samples by their old numbers.
    """
    index = rows.tolist()
    flat: dict[str, Any] = {
        name: take_rows(value, batch.offsets, rows)
        for name, value in batch.per_token.items()
    }
    per_sample: dict[str, Any] = {
        name: tuple(value[i] for i in index)
        for name in PER_SAMPLE
        if (value := getattr(batch, name)) is not None
    }
    on_device = rows.to(batch.offsets.device)
    return replace(
        batch,
        **flat,
        **per_sample,
        **_prompts(batch, rows),
        offsets=offsets_of(batch.offsets.diff()[on_device]),
        lengths=batch.lengths[on_device],
        rewards=None if batch.rewards is None else batch.rewards[on_device],
        scores={
            name: take_rows(value, batch.offsets, rows)
            for name, value in batch.scores.items()
        },
        sample_columns=_sample_columns(batch, rows.numpy()),
        round_columns=_round_columns(batch.round_columns, rows.numpy()),
        meta={name: value for name, value in batch.meta.items() if name != "checks"},
    )


def take_rows(flat: Tensor, offsets: Tensor, rows: Tensor) -> Tensor:
    """Take some rows of a flat tensor; a view where they are neighbours.

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


def moved(batch: AnyBatch, device: str | torch.device) -> AnyBatch:
    """Return the batch with every tensor on `device`."""
    tensors: dict[str, Any] = {
        entry.name: value.to(device)
        for entry in fields(batch)
        if isinstance(value := getattr(batch, entry.name), torch.Tensor)
    }
    scores = {name: value.to(device) for name, value in batch.scores.items()}
    return replace(batch, **tensors, scores=scores)


def _prompts(batch: Batch, rows: Tensor) -> dict[str, Any]:
    if batch.prompt_ids is None or batch.prompt_offsets is None:
        return {}
    sizes = batch.prompt_offsets.diff()[rows.to(batch.prompt_offsets.device)]
    return {
        "prompt_ids": take_rows(batch.prompt_ids, batch.prompt_offsets, rows),
        "prompt_offsets": offsets_of(sizes),
    }


def _sample_columns(batch: Batch, rows: Array) -> dict[str, Array]:
    columns = {ORIGINAL_SAMPLE.name: np.arange(batch.num_samples, dtype=np.int32)}
    return {k: v[rows] for k, v in {**columns, **batch.sample_columns}.items()}


def _round_columns(columns: Mapping[str, Array], rows: Array) -> dict[str, Array]:
    if not columns:
        return {}
    parts = [np.flatnonzero(columns["sample"] == row) for row in rows]
    keep = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    renumbered = np.repeat(np.arange(len(rows)), [len(part) for part in parts])
    chosen = {name: values[keep] for name, values in columns.items()}
    return {**chosen, "sample": renumbered.astype(columns["sample"].dtype)}

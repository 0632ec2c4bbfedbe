"""Smaller batches, and batches on another device."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.layout import PER_SAMPLE, offsets_of
from rounddiag.errors import BatchError
from rounddiag.schema import ORIGINAL_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor
    from typing_extensions import TypeVar

    from rounddiag.batch.container import Batch

    Array = np.ndarray[Any, Any]
    AnyBatch = TypeVar("AnyBatch", bound=Batch)
    Index = int | slice | Sequence[int] | Array | Tensor


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

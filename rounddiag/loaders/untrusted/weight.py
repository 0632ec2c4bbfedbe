"""How much memory a batch takes, and reading it from its file beyond that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rounddiag.loaders.parquet.columns import SHARED
from rounddiag.vision import EncodedScreenshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from rounddiag.batch import Batch


# Bytes of objects, measured on CPython 3.11: a tensor of a row, a screenshot, and the
# four numbers of a round.
_TENSOR, _SCREENSHOT, _ROUND = 400, 400, 32
_POINTER = 8
# What Arrow holds while it reads a column of lists, measured as the growth beyond the
# batch: 4 to 11 bytes a value for the structure of the lists, the page and its copy in
# another dtype, and 58 for a list of one value.
_PER_VALUE, _PER_LIST = 12, 50


def batch_bytes(batch: Batch) -> int:
    """Return how many bytes a batch takes, without objects that a file has as JSON.

    Long texts that are equal count once, because a file's reader shares them.
    """
    arrays = [*batch.sample_columns.values(), *batch.round_columns.values()]
    names = [*(batch.sample_ids or ()), *(batch.group_ids or ())]
    objects = [values.ravel() for values in arrays if values.dtype == object]
    rows = [*(batch.position_ids or ()), *(batch.rollout_ids or ())]
    shots = [shot for row in batch.images or () for shot in row]
    return (
        sum(map(_tensor_bytes, _flat_tensors(batch)))
        + sum(_TENSOR + _tensor_bytes(row) for row in rows)
        + _ROUND * batch.num_rounds
        + sum(values.nbytes for values in arrays)
        + _POINTER * (len(names) + len(batch.images or ()))
        + _texts_bytes([names, *objects])
        + sum(_SCREENSHOT + _data_bytes(shot) for shot in shots)
    )


def _flat_tensors(batch: Batch) -> list[Tensor]:
    others = (batch.offsets, batch.lengths, batch.rewards)
    prompts = (batch.prompt_ids, batch.prompt_offsets)
    flat = [*batch.per_token.values(), *batch.scores.values(), *others, *prompts]
    return [tensor for tensor in flat if tensor is not None]


def _tensor_bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.dtype.itemsize


def _data_bytes(shot: object) -> int:
    return len(shot.data) if isinstance(shot, EncodedScreenshot) else 0


def _texts_bytes(columns: Iterable[Iterable[object]]) -> int:
    """Return the bytes of texts and numbers; equal long texts count once a column."""
    total = 0
    for values in columns:
        long: set[str | bytes] = set()
        for value in values:
            if not isinstance(value, str | bytes):
                total += sys.getsizeof(value) if isinstance(value, int | float) else 0
            elif len(value) < SHARED:
                total += sys.getsizeof(value)
            elif value not in long:
                long.add(value)
                total += sys.getsizeof(value)
    return total


def extra_bytes(batch: Batch) -> int:
    """Return how many bytes reading a batch takes at most in addition to its own.

    A column is read at a time: of numbers, or of texts, which Arrow holds as well.
    """
    longest = max(len(batch.response_ids), _num_values(batch.prompt_ids))
    columns = [*batch.sample_columns.values(), *batch.round_columns.values()]
    names = (batch.sample_ids or (), batch.group_ids or ())
    rows = (batch.position_ids or (), batch.rollout_ids or ())
    return max(
        _PER_VALUE * longest + _PER_LIST * len(batch),
        *(_PER_VALUE * sum(map(_num_values, row)) for row in rows),
        *(values.nbytes for values in columns if values.dtype != object),
        *(_arrow_bytes(values.ravel()) for values in columns if values.dtype == object),
        *map(_arrow_bytes, names),
        sum(_data_bytes(shot) for row in batch.images or () for shot in row),
    )


def _num_values(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.numel()


def _arrow_bytes(values: Iterable[object]) -> int:
    """Return the bytes of texts, each time that they occur."""
    return sum(len(value) for value in values if isinstance(value, str | bytes))

"""How much memory a batch takes, and reading it from its file beyond that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import torch

from rounddiag.loaders.parquet.columns import SHARED
from rounddiag.vision import EncodedScreenshot

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.batch import Batch


# Bytes of objects, measured on CPython 3.11: a tensor of a row, a screenshot, and the
# four numbers of a round.
_TENSOR, _SCREENSHOT, _ROUND = 800, 400, 32
_POINTER = 8
# A column of a dtype that the file does not have is converted when it is read. The
# file has it in up to four bytes a value.
_UNCONVERTED = (torch.float32, torch.float64, torch.int32, torch.bool)
_STORED = 4


def batch_bytes(batch: Batch) -> int:
    """Return how many bytes a batch takes, without objects that a file has as JSON.

    Long texts that are equal count once, because a file's reader shares them.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch_bytes(rd.load("sample_data/image_window_verl.pkl")) > 0
    True
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
    """Return the bytes of texts and numbers; of equal long texts in a column, of one."""
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
    """Return how many bytes reading a batch takes at most in addition to its own."""
    tensors = [t for t in _flat_tensors(batch) if t.dtype not in _UNCONVERTED]
    converted = max((_STORED * tensor.numel() for tensor in tensors), default=0)
    columns = [*batch.sample_columns.values(), *batch.round_columns.values()]
    numbers = max((v.nbytes for v in columns if v.dtype != object), default=0)
    return max(converted, numbers, 2 * _longest_text(columns))


def _longest_text(columns: Iterable[Array]) -> int:
    texts = (values.ravel() for values in columns if values.dtype == object)
    sizes = (
        len(value) for row in texts for value in row if isinstance(value, str | bytes)
    )
    return max(sizes, default=0)


def table_bytes(num_bytes: Iterable[int]) -> int:
    """Return how many bytes the texts of tokens take, of these lengths each."""
    sizes = np.fromiter(num_bytes, dtype=np.int64)
    return int(sizes.sum() + 200 * len(sizes))

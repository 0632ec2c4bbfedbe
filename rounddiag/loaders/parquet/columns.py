"""Tensors and texts as columns of Arrow, and back."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from rounddiag.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# What Arrow and numpy raise over a file that is broken, or made to break a reader.
BROKEN = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
_INT32 = torch.iinfo(torch.int32)


def host_array(values: Tensor) -> np.ndarray[Any, Any]:
    """Return the values on the host: floats from 32 bits up, int64 narrowed to int32.

    Examples
    --------
    >>> host_array(torch.tensor([1, 2])).dtype
    dtype('int32')
    """
    values = values.detach().cpu()
    if values.dtype.is_floating_point and values.dtype.itemsize < 4:  # noqa: PLR2004 bytes of a float32
        return values.float().numpy()
    if values.dtype == torch.int64 and _fits_int32(values):
        return values.int().numpy()
    return values.numpy()


def mask_array(values: Tensor) -> np.ndarray[Any, Any]:
    """Return a mask as bool where it holds 0 and 1 only, else as `host_array`."""
    flags = values != 0
    return host_array(flags if bool((values == flags).all()) else values)


def list_array(values: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> pa.Array:
    """Divide flat values into lists of these sizes."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array(values.reshape(-1))
    )


def text_array(name: str, texts: Sequence[str]) -> pa.Array:
    """Return strings as a column.

    Raises
    ------
    BatchError
        If one is no string, or cannot be written as UTF-8.
    """
    try:
        return pa.array(list(texts), pa.string())
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BatchError.build(
            key=name,
            expected="strings that UTF-8 can hold",
            found=str(error),
            advice="Pass one string per sample.",
        ) from error


def tensor_of(values: pa.ChunkedArray | pa.Array) -> Tensor:
    """Return numbers as a tensor of their own memory.

    Raises
    ------
    TypeError
        If torch has no such type.
    """
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    parts = [chunk.to_numpy(zero_copy_only=False) for chunk in chunks]
    empty = np.empty(0, values.type.to_pandas_dtype())
    return torch.from_numpy(np.concatenate([empty, *parts]))


def to_json(key: str, value: object) -> str:
    """Return a value as JSON: NaN as Python writes it, numpy's values as Python's.

    Raises
    ------
    BatchError
        If it holds objects that JSON has no form for.
    """
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise BatchError.build(
            key=key,
            expected="numbers, texts, and lists and dictionaries of them",
            found=str(error),
            advice="Convert it, or leave it out.",
        ) from error


def _plain(value: object) -> object:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    msg = f"an object of type {type(value).__name__}"
    raise TypeError(msg)


def _fits_int32(values: Tensor) -> bool:
    if values.numel() == 0:
        return True
    low, high = values.aminmax()
    return bool((low >= _INT32.min) & (high <= _INT32.max))

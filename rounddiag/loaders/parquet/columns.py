"""Tensors and arrays as Arrow columns, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from rounddiag.errors import BatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

# How a column that Arrow has no type for is marked in its field's metadata.
_MARK = b"rounddiag"
_OBJECTS, _JSON = b"objects", b"json"
_PLAIN = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
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


def open_column(name: str, values: np.ndarray[Any, Any]) -> tuple[pa.Field, pa.Array]:
    """Return a column of any kind without loss.

    Numbers and times keep their type, texts and lists of one type of object become
    that type, and other objects become JSON.

    Raises
    ------
    BatchError
        If it holds objects that JSON has no form for.
    """
    if values.dtype.kind in "biufMm":
        array = _numbers_array(name, values)
        return pa.field(name, array.type), array
    items = values.tolist()
    array, mark = _plain_array(items), _OBJECTS
    if array is None:
        array, mark = _json_array(name, items), _JSON
    return pa.field(name, array.type, metadata={_MARK: mark}), array


def _numbers_array(name: str, values: np.ndarray[Any, Any]) -> pa.Array:
    try:
        array = pa.array(values.reshape(-1))
        for size in reversed(values.shape[1:]):
            array = pa.FixedSizeListArray.from_arrays(array, size)
    except pa.ArrowException as error:
        raise BatchError.build(
            key=name,
            expected="a dtype that Parquet has",
            found=f"{values.dtype} of shape {values.shape}",
            advice="Convert the column, or leave it out.",
        ) from error
    return array


def _fits_int32(values: Tensor) -> bool:
    if values.numel() == 0:
        return True
    low, high = values.aminmax()
    return int(low) >= _INT32.min and int(high) <= _INT32.max


def _plain_array(items: list[Any]) -> pa.Array | None:
    types = {type(item) for item in items} - {type(None)}
    if len(types) != 1 or not types <= _PLAIN.keys():
        return None
    try:
        return pa.array(items, _PLAIN[types.pop()])
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # an integer beyond 64 bits, or text that is no Unicode


def _json_array(name: str, items: list[Any]) -> pa.Array:
    try:
        texts = [json.dumps(item, default=_without_numpy) for item in items]
    except (TypeError, ValueError, RecursionError) as error:
        raise BatchError.build(
            key=name,
            expected="numbers, texts, and lists and dictionaries of them",
            found=str(error),
            advice="Convert the column, or leave it out.",
        ) from error
    return pa.array(texts, pa.string())


def _without_numpy(item: object) -> object:
    if isinstance(item, np.ndarray | np.generic):
        return item.tolist()
    msg = f"a {type(item).__name__}"
    raise TypeError(msg)


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


def array_of(field: pa.Field, column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """Return what `open_column` was given; texts as an array of objects."""
    mark = (field.metadata or {}).get(_MARK)
    if mark == _JSON:
        return _objects([json.loads(text) for text in column.to_pylist()])
    shape = [len(column)]
    while pa.types.is_fixed_size_list(column.type):
        shape.append(column.type.list_size)
        column = pc.list_flatten(column)
    if mark == _OBJECTS or not pa.types.is_primitive(column.type):
        return _objects(column.to_pylist())
    return np.array(column.to_numpy()).reshape(shape)


def _objects(items: list[Any]) -> np.ndarray[Any, Any]:
    return np.fromiter(items, dtype=object, count=len(items))

"""Columns of any kind, as `sample_columns` and `round_columns` have them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import to_json

# How a column that Arrow has no type for is marked in its field's metadata.
_MARK = b"rounddiag"
_OBJECTS, _JSON = b"objects", b"json"
_PLAIN = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}


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
        texts = [to_json(name, item) for item in items]
        array, mark = pa.array(texts, pa.string()), _JSON
    return pa.field(name, array.type, metadata={_MARK: mark}), array


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


def _plain_array(items: list[Any]) -> pa.Array | None:
    types = {type(item) for item in items} - {type(None)}
    if len(types) != 1 or not types <= _PLAIN.keys():
        return None
    try:
        return pa.array(items, _PLAIN[types.pop()])
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # an integer beyond 64 bits, or text that is no Unicode

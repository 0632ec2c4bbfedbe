"""Columns of any kind, as `sample_columns` and `round_columns` have them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import to_json
from rounddiag.loaders.parquet.dtypes import array_mark, marked_array

Array = np.ndarray[Any, Any]

# How a column that Arrow has no type for is marked in its field's metadata.
_MARK = b"rounddiag"
_OBJECTS, _JSON = b"objects", b"json"
_PLAIN = {
    str: pa.string(),
    bytes: pa.binary(),
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
}
_NUMBERS, _TIMES, _TEXTS = "biuf", "mM", "OUS"
_UNITS = ("ms", "us", "ns")  # of times in Parquet


def open_column(name: str, values: Array) -> tuple[pa.Field, pa.Array]:
    """Return a column of any kind without loss.

    Numbers, times and texts of numpy keep their dtype, objects of one plain type become
    a column of that type, and other objects become JSON.

    Raises
    ------
    BatchError
        If it holds what neither Parquet nor JSON has a form for.
    """
    try:
        array, marks = _stored(name, values.reshape(-1))
        for size in reversed(values.shape[1:]):
            array = pa.FixedSizeListArray.from_arrays(array, size)
    except pa.ArrowException as error:
        raise _unfit(name, values) from error
    marks = {**marks, **array_mark(values.dtype)}
    return pa.field(name, array.type, metadata=marks), array


def array_of(field: pa.Field, column: pa.ChunkedArray) -> Array:
    """Return what `open_column` was given."""
    shape = [len(column)]
    while pa.types.is_fixed_size_list(column.type):
        shape.append(column.type.list_size)
        column = pc.list_flatten(column)
    values = _read(column, (field.metadata or {}).get(_MARK))
    return marked_array(values, field).reshape(shape)


def _stored(name: str, flat: Array) -> tuple[pa.Array, dict[bytes, bytes]]:
    kind = flat.dtype.kind
    if kind in _NUMBERS + _TIMES:
        native = flat.astype(flat.dtype.newbyteorder("="), copy=False)
        return pa.array(_times(native) if kind in _TIMES else native), {}
    if kind not in _TEXTS:
        raise _unfit(name, flat)
    items = flat.tolist()
    array = _plain_array(items)
    if array is not None:
        return array, {_MARK: _OBJECTS}
    texts = [to_json(name, item) for item in items]
    return pa.array(texts, pa.string()), {_MARK: _JSON}


def _times(flat: Array) -> Array:
    """Return times in a unit that Parquet has, or as the integers that they are."""
    unit, count = np.datetime_data(flat.dtype)
    if unit in _UNITS and count == 1:
        return flat
    integers = flat.view(np.int64)
    try:
        in_ms = flat.astype(f"{flat.dtype.kind}8[ms]")
        is_kept = np.array_equal(in_ms.astype(flat.dtype).view(np.int64), integers)
    except (OverflowError, TypeError):
        return integers
    return in_ms if is_kept else integers


def _read(column: pa.ChunkedArray, mark: bytes | None) -> Array:
    if mark == _JSON:
        return _objects([json.loads(text) for text in column.to_pylist()])
    if mark == _OBJECTS or not pa.types.is_primitive(column.type):
        return _objects(column.to_pylist())
    return np.array(column.to_numpy())


def _objects(items: list[Any]) -> Array:
    return np.fromiter(items, dtype=object, count=len(items))


def _plain_array(items: list[Any]) -> pa.Array | None:
    types = {type(item) for item in items} - {type(None)}
    if len(types) != 1 or not types <= _PLAIN.keys():
        return None
    try:
        return pa.array(items, _PLAIN[types.pop()])
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # an integer beyond 64 bits, or text that is no Unicode


def _unfit(name: str, values: Array) -> BatchError:
    return BatchError.build(
        key=name,
        expected="a dtype that Parquet has",
        found=f"{values.dtype} of shape {values.shape}",
        advice="Convert the column, or leave it out.",
    )

"""Columns of Arrow as tensors, arrays and lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rounddiag.batch.layout import offsets_of
from rounddiag.loaders.parquet.columns import tensor_of
from rounddiag.loaders.tensors.ragged import Ragged

if TYPE_CHECKING:
    from torch import Tensor

# Not list views, which may overlap: a few bytes could be as many rows as one likes.
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_struct)
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null)


def is_rows(kind: pa.DataType) -> bool:
    """Whether a column holds lists, of anything but what may be pictures."""
    kind = _storage(kind)
    return _is_any(kind, _LISTS) and not _is_any(_storage(kind.value_type), _BYTES)


def rows_of(column: pa.ChunkedArray) -> Ragged | list[Tensor]:
    """Return a column of lists as rows; those of lists of lists have two dimensions.

    Raises
    ------
    ValueError, TypeError
        If a list is null, or holds anything but numbers. A missing number is NaN where
        the type has one.

    Examples
    --------
    >>> rows_of(pa.chunked_array([[[5, 6], [7]]])).values
    tensor([5, 6, 7])
    """
    column = _stored(column)
    if column.null_count:
        msg = f"null in {column.null_count} of {len(column)} rows"
        raise ValueError(msg)
    sizes = tensor_of(pc.list_value_length(column)).long()
    values = _stored(pc.list_flatten(column))
    if _is_any(values.type, _LISTS):
        return _matrices(rows_of(values), sizes)
    return Ragged(values=_numbers(values), offsets=offsets_of(sizes))


def plain_column(column: pa.ChunkedArray) -> Any:  # noqa: ANN401 array or list
    """Return one value a row: an array of numbers, or a list where some are missing.

    What may be pictures stays as it is, until it is known that they are wanted.
    """
    if pa.types.is_dictionary(column.type):
        return [value for chunk in column.chunks for value in _values(chunk)]
    column = _stored(column)
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    elif pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    if _is_number(column.type) and not column.null_count:
        return column.to_numpy()
    is_plain = _is_number(column.type) or _is_any(column.type, _TEXTS)
    return column.to_pylist() if is_plain else column


def _values(chunk: pa.DictionaryArray) -> list[Any]:
    """Return one object for each value of a dictionary, however often it occurs."""
    values = chunk.dictionary.to_pylist()
    places = chunk.indices.to_pylist()
    return [None if place is None else values[place] for place in places]


def _is_any(kind: pa.DataType, kinds: tuple[Any, ...]) -> bool:
    return any(is_kind(kind) for is_kind in kinds)


def _storage(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        return _storage(kind.storage_type)
    return _storage(kind.value_type) if pa.types.is_dictionary(kind) else kind


def _stored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values without extension types and dictionaries around them."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        chunks = [chunk.storage for chunk in column.chunks]
        return _stored(pa.chunked_array(chunks, type=kind.storage_type))
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def _matrices(inner: Ragged | list[Tensor], counts: Tensor) -> list[Tensor]:
    """Put lists of lists together, all of a row as long as each other."""
    if not isinstance(inner, Ragged):
        msg = "lists in lists in lists"
        raise TypeError(msg)
    found, start = [], 0
    for sizes in inner.lengths.split(counts.tolist()):
        width = int(sizes[0]) if len(sizes) else 0
        if bool((sizes != width).any()):
            msg = "lists of different lengths in one row"
            raise ValueError(msg)
        stop = start + width * len(sizes)
        found.append(inner.values[start:stop].reshape(len(sizes), width))
        start = stop
    return found


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind)) or _is_whole(kind)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _numbers(values: pa.ChunkedArray) -> Tensor:
    """Return numbers as a tensor; a missing one is NaN where the type has it."""
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    elif pa.types.is_unsigned_integer(values.type):
        values = values.cast(pa.int64())
    if not _is_number(values.type):
        msg = f"{values.type} in the place of numbers"
        raise TypeError(msg)
    if values.null_count and _is_whole(values.type):
        msg = f"{values.null_count} nulls among whole numbers"
        raise ValueError(msg)
    return tensor_of(values)

"""Tensors and texts as columns of Arrow, and back."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.columns.column import is_unknown, python_value
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.stored import DTYPES
from rounddiag.text.json_text import check_depth, parse_json

_Columns = Mapping[str, np.ndarray[Any, Any]]


# What Arrow and numpy raise for a file that is broken or forged.
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
# Prefixes of the names of open columns, and of those with a value per position the
# mapping of the Batch that holds them.
SAMPLE_PREFIX, SCORE_PREFIX, TOKEN_PREFIX = "sample:", "score:", "token:"
POSITION_PREFIXES = {"scores": SCORE_PREFIX, "token_columns": TOKEN_PREFIX}
TURNS = "turns"
TURNS_TYPE = pa.list_(
    pa.struct({"role": pa.string(), "text": pa.string(), "num_images": pa.int32()})
)
CONTEXTS = "contexts"  # those of each sample that do not append to the one before
CONTEXTS_TYPE = pa.list_(
    pa.struct(
        {
            "round": pa.int32(),
            "start": pa.int32(),
            "ranges": pa.list_(pa.int32()),  # start, stop, start, stop
        }
    )
)
SHAPED = ("position_ids", "rollout_ids")  # fields with one tensor per sample
SHAPE_SUFFIX = "_shape"  # suffix of the column with the shapes of a field's rows
_INT32 = torch.iinfo(torch.int32)


def open_native(file: Path) -> pa.NativeFile:
    """Open a file for Arrow, which itself opens no path that is not UTF-8."""
    try:
        return pa.OSFile(str(file))
    except UnicodeEncodeError:
        return pa.PythonFile(file.open("rb"), mode="r")


class TooLargeError(Exception):
    """A file takes more memory than it may."""


_PER_FOOTER_BYTE = 24  # bytes of objects that a byte of the footer becomes, at most
_TAIL = 8  # bytes at the end of a Parquet file: the length of its footer, and a mark


@contextmanager
def open_parquet(
    file: Path, *, most_bytes: int | None = None
) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file of any name, and close it at the end.

    `most_bytes` is what its footer may take in memory; a TooLargeError if it is more.
    """
    with open_native(file) as native:
        if most_bytes is not None:
            native.seek(max(native.size() - _TAIL, 0))
            length = min(int.from_bytes(native.read(4), "little"), native.size())
            if _PER_FOOTER_BYTE * length > most_bytes:
                raise TooLargeError
            native.seek(0)
        metadata = pq.read_metadata(native)
        repeated = [
            *filter(
                _is_open_text, map(metadata.schema.column, range(metadata.num_columns))
            )
        ]
        paths = [column.path for column in repeated]
        with pq.ParquetFile(native, metadata=metadata, read_dictionary=paths) as source:
            yield source


# Texts of samples and rounds, which are read as their distinct values: a few bytes can
# be one text a thousand times.
OPEN_TEXT = re.compile(r"sample:[^.]*|round_columns\.list\.element\.[^.]*")


def _is_open_text(column: pq.ColumnSchema) -> bool:
    is_text = column.physical_type == "BYTE_ARRAY"
    return is_text and OPEN_TEXT.fullmatch(column.path) is not None


def real_values(flat: Tensor, offsets: Tensor, lengths: Tensor) -> Tensor:
    """Return the values of the real positions; without padding, no copy of them."""
    if bool((offsets.diff() == lengths).all()):
        return flat
    spans = zip(offsets[:-1].tolist(), lengths.tolist(), strict=True)
    return torch.cat([flat[start : start + length] for start, length in spans])


def stored_array(values: Tensor) -> np.ndarray[Any, Any]:
    """Copy to numpy: floats have at least 32 bits, int64 becomes int32 if it fits.

    Examples
    --------
    >>> stored_array(torch.tensor([1, 2])).dtype
    dtype('int32')
    """
    values = values.detach().cpu()
    if values.dtype.is_floating_point and values.dtype.itemsize < 4:  # noqa: PLR2004 bytes of a float32
        return values.float().numpy()
    if values.dtype == torch.int64 and _fits_int32(values):
        return values.int().numpy()
    return values.numpy()


def mask_array(values: Tensor) -> np.ndarray[Any, Any]:
    """Return a mask as bool if it holds only 0 and 1, else as `stored_array` does."""
    flags = values != 0
    return stored_array(flags if bool((values == flags).all()) else values)


def list_array(values: np.ndarray[Any, Any], sizes: np.ndarray[Any, Any]) -> pa.Array:
    """Split flat values into lists of these sizes.

    That no value is null is in the type: columns are then read a quarter faster.
    """
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    array = pa.array(values.reshape(-1))
    element = pa.field("element", array.type, nullable=False)
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), array, type=pa.list_(element)
    )


def to_tensor(values: pa.ChunkedArray | pa.Array) -> Tensor:
    """Return numbers as a tensor; those just read from Parquet are not copied.

    A missing float is NaN; no other number may be missing.
    """
    if isinstance(values, pa.ChunkedArray):
        is_whole = values.num_chunks == 1
        values = values.chunk(0) if is_whole else values.combine_chunks()
    buffer, start, num = values.buffers()[1], values.offset, len(values)
    if pa.types.is_boolean(values.type):
        packed = np.frombuffer(buffer or b"", np.uint8)
        flags = np.unpackbits(packed, bitorder="little", count=start + num)[start:]
        return torch.from_numpy(flags.view(np.bool_))
    if values.null_count or not num or not buffer.is_mutable:
        return torch.from_numpy(values.to_numpy(zero_copy_only=False).copy())
    dtype = np.dtype(values.type.to_pandas_dtype())
    numbers = np.frombuffer(buffer, dtype, num, start * dtype.itemsize)
    return torch.from_numpy(numbers)


def to_json(key: str, value: object) -> str:
    """Return a value as JSON, with NaN, and numpy values as Python values."""
    try:
        check_depth(value)
        return json.dumps(value, default=_json_value)
    except (TypeError, ValueError, RecursionError) as error:
        raise BatchError.build(
            key=key,
            expected="numbers, texts, and lists and dictionaries of them",
            found=str(error),
            advice="Convert it, or leave it out.",
        ) from error


def _json_value(value: object) -> object:
    if isinstance(value, np.ndarray) and value.ndim:
        return value.tolist()
    value = python_value(value)
    if is_unknown(value):
        return None
    if isinstance(value, str | int | float | list | tuple):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"an object of type {type(value).__name__}")


def _fits_int32(values: Tensor) -> bool:
    if values.numel() == 0:
        return True
    low, high = values.aminmax()
    return bool((low >= _INT32.min) & (high <= _INT32.max))


_KEY = b"rounddiag.dtype"
_KINDS = "biufmMUS"  # dtype kinds that a mark may name
_MAX_TEXT = 1 << 26  # bytes of an array of fixed-width text


def tensor_mark(dtype: torch.dtype) -> dict[bytes, bytes]:
    """Return metadata that names a tensor's dtype; empty if a column cannot have it.

    Examples
    --------
    >>> tensor_mark(torch.bfloat16)
    {b'rounddiag.dtype': b'bfloat16'}
    """
    name = str(dtype).removeprefix("torch.")
    return {_KEY: name.encode()} if name in DTYPES else {}


def marked_tensor(values: Tensor, field: pa.Field) -> Tensor:
    """Return a tensor in the dtype that it was saved with."""
    mark = (field.metadata or {}).get(_KEY)
    if mark is None:
        return values
    dtype = DTYPES.get(mark.decode(errors="replace"))
    if dtype is None:
        raise _mark_error(field, mark)
    return values.to(dtype)


def _array_mark(dtype: np.dtype[Any]) -> dict[bytes, bytes]:
    """Return metadata that names an array's dtype; empty for objects.

    Examples
    --------
    >>> _array_mark(np.dtype("datetime64[s]"))
    {b'rounddiag.dtype': b'<M8[s]'}
    """
    return {_KEY: dtype.str.encode()} if dtype.kind in _KINDS else {}


def _marked_array(values: Array, field: pa.Field) -> Array:
    """Return an array in the dtype that it was saved with.

    Texts stay objects if fixed width would need far more memory.
    """
    mark = (field.metadata or {}).get(_KEY)
    if mark is None:
        return values
    try:
        dtype = np.dtype(mark.decode())
    except (TypeError, ValueError, SyntaxError) as error:
        raise _mark_error(field, mark) from error
    if dtype.kind not in _KINDS or dtype.subdtype is not None:
        raise _mark_error(field, mark)
    is_text = dtype.kind in "US"
    if is_text and len(values) * dtype.itemsize > _MAX_TEXT:
        return values
    try:
        with np.errstate(invalid="raise", over="raise"):
            return values.astype(dtype, copy=False)
    except (FloatingPointError, TypeError, ValueError, OverflowError) as error:
        raise _mark_error(field, mark) from error


def _mark_error(field: pa.Field, mark: bytes) -> LoadError:
    expected = "the name of a dtype in the column's metadata"
    return resave_error(field.name, expected, repr(mark[:40]))


def resave_error(key: str, expected: str, content: str) -> LoadError:
    """Return an error of a file that `save` did not write in this way."""
    advice = "Save the batch with `rounddiag.save`."
    return LoadError.build(key=key, expected=expected, found=content, advice=advice)


# Marks a column of objects, for which Arrow has no type.
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
    """Return an array of any dtype as a column, without loss.

    Numbers, times and texts of numpy keep their dtype. Objects of one plain type become
    a column of that type, other objects become JSON.
    """
    try:
        array, marks = _encode(name, values.reshape(-1))
        for size in reversed(values.shape[1:]):
            array = pa.FixedSizeListArray.from_arrays(array, size)
    except pa.ArrowException as error:
        raise _dtype_error(name, values) from error
    marks = {**marks, **_array_mark(values.dtype)}
    return pa.field(name, array.type, metadata=marks), array


SHARED = 1000  # characters from which equal texts of a column share one object


class SharedTexts:
    """Replaces long texts by equal ones that it has seen; other values stay.

    A few bytes of a file can be one text a thousand times.

    Examples
    --------
    >>> share = SharedTexts()
    >>> a, b = share(["x" * 1000, "".join(["x"] * 1000)])
    >>> a is b
    True
    """

    def __init__(self) -> None:
        self._known: dict[str | bytes, str | bytes] = {}

    def __call__(self, items: list[Any]) -> list[Any]:
        """Return the values, in place."""
        for at, item in enumerate(items):
            if isinstance(item, str | bytes) and len(item) >= SHARED:
                items[at] = self._known.setdefault(item, item)
        return items


def read_columns(
    fields: Sequence[pa.Field], parts: Iterable[Sequence[pa.ChunkedArray]]
) -> dict[str, Array]:
    """Return the arrays that `open_column` turned into columns."""
    read: list[list[Array]] = [[] for _ in fields]
    shared = [SharedTexts() for _ in fields]
    for columns in parts:
        for field, column, values, share in zip(
            fields, columns, read, shared, strict=True
        ):
            values.append(_read_values(field, column, share))
    return {
        field.name: _marked_array(
            values[0] if len(values) == 1 else np.concatenate(values), field
        )
        for field, values in zip(fields, read, strict=True)
    }


def _read_values(field: pa.Field, column: pa.ChunkedArray, share: SharedTexts) -> Array:
    shape = [len(column)]
    while pa.types.is_fixed_size_list(column.type):
        shape.append(column.type.list_size)
        column = pc.list_flatten(column)
    return _read(column, (field.metadata or {}).get(_MARK), share).reshape(shape)


def is_json(field: pa.Field) -> bool:
    """Return whether a column, or a part of its lists of structs, holds JSON."""
    kind = field.type
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return any(map(is_json, kind.value_type))
    return (field.metadata or {}).get(_MARK) == _JSON


def _encode(name: str, flat: Array) -> tuple[pa.Array, dict[bytes, bytes]]:
    kind = flat.dtype.kind
    if kind in _NUMBERS + _TIMES:
        native = flat.astype(flat.dtype.newbyteorder("="), copy=False)
        return pa.array(_times(native) if kind in _TIMES else native), {}
    if kind not in _TEXTS:
        raise _dtype_error(name, flat)
    items = flat.tolist()
    array = _plain_array(items)
    if array is not None:
        return array, {_MARK: _OBJECTS}
    texts = [to_json(name, item) for item in items]
    return pa.array(texts, pa.string()), {_MARK: _JSON}


def _times(flat: Array) -> Array:
    """Return times in a unit that Parquet has, or else as integers."""
    unit, count = np.datetime_data(flat.dtype)
    if unit in _UNITS and count == 1:
        return flat
    integers = flat.view(np.int64)
    try:
        in_ms = flat.astype(f"{flat.dtype.kind}8[ms]")
        is_exact = np.array_equal(in_ms.astype(flat.dtype).view(np.int64), integers)
    except (OverflowError, TypeError):
        return integers
    return in_ms if is_exact else integers


def _read(column: pa.ChunkedArray, mark: bytes | None, share: SharedTexts) -> Array:
    items: list[Any] | None = None
    if pa.types.is_dictionary(column.type):
        items = [text for chunk in column.chunks for text in _texts(chunk)]
    if mark == _JSON:
        texts = column.to_pylist() if items is None else items
        return _objects([parse_json(text, keep_halves=True) for text in texts])
    if items is not None:
        return _objects(share(items))
    if mark == _OBJECTS or not pa.types.is_primitive(column.type):
        return _objects(share(column.to_pylist()))
    return np.array(column.to_numpy())


def _texts(chunk: pa.DictionaryArray) -> Iterator[Any]:
    values = [*chunk.dictionary.to_pylist(), None]
    yield from (values[-1 if at is None else at] for at in chunk.indices.to_pylist())


def _objects(items: list[Any]) -> Array:
    return np.fromiter(items, dtype=object, count=len(items))


def _plain_array(items: list[Any]) -> pa.Array | None:
    types = {type(item) for item in items} - {type(None)}
    if len(types) != 1 or not types <= _PLAIN.keys():
        return None
    try:
        return pa.array(items, _PLAIN[types.pop()])
    except (pa.ArrowException, ValueError, OverflowError):
        return None  # an integer beyond 64 bits, or text with lone surrogates


def _dtype_error(name: str, values: Array) -> BatchError:
    return BatchError.build(
        key=name,
        expected="a dtype that Parquet has",
        found=f"{values.dtype} of shape {values.shape}",
        advice="Convert the column, or leave it out.",
    )


def rounds_column(columns: _Columns, num_samples: int) -> tuple[pa.Field, pa.Array]:
    """Return the columns as a list of structs per sample, in their order."""
    sample = columns["sample"]
    sizes = _rows_per_sample(sample, num_samples)
    order = np.argsort(sample, kind="stable")
    parts = [
        open_column(name, values[order])
        for name, values in columns.items()
        if name != "sample"
    ]
    structs = pa.StructArray.from_arrays(
        [array for _, array in parts], fields=[field for field, _ in parts]
    )
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs)
    # The lists replace the column `sample`; only its dtype is stored.
    mark = _array_mark(sample.dtype)
    return pa.field("round_columns", array.type, metadata=mark), array


def read_rounds_column(
    parts: Iterable[pa.ChunkedArray], field: pa.Field
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns of lists of structs, with `sample` first."""
    sizes: list[Array] = []

    def columns() -> Iterator[list[pa.ChunkedArray]]:
        for part in parts:
            sizes.append(pc.list_value_length(part).to_numpy())
            structs = pc.list_flatten(part).combine_chunks()
            yield [pa.chunked_array([column]) for column in structs.flatten()]

    read = read_columns([*field.type.value_type], columns())
    num_rounds = np.concatenate(sizes)
    sample = np.repeat(np.arange(len(num_rounds)), num_rounds)
    return {"sample": _marked_array(sample, field), **read}


def _rows_per_sample(
    sample: np.ndarray[Any, Any], num_samples: int
) -> np.ndarray[Any, Any]:
    if ((sample < 0) | (sample >= num_samples)).any():
        raise BatchError.build(
            key="round_columns",
            expected=f"a `sample` from 0 to {num_samples - 1} in each row",
            found=f"values from {sample.min()} to {sample.max()}",
            advice="Number the samples as the batch does.",
        )
    return np.bincount(sample.astype(np.int64), minlength=num_samples)

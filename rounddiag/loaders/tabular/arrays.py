"""Tensors by name: a dictionary in a torch file, `.npz`, safetensors."""

from __future__ import annotations

import json
from dataclasses import replace
from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rounddiag.loaders.format import Format
from rounddiag.loaders.lazy.arrays import (
    Ragged,
    StoredArray,
    close_gaps,
    scalar_value,
    stored_array,
)
from rounddiag.loaders.lazy.tensors import (
    DTYPES,
    StoredJagged,
    StoredTensor,
    contiguous,
    find_tensor,
    integers,
)
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.tabular.in_memory import rows_from_numbers, table_from_lines
from rounddiag.loaders.tabular.json_lines import JsonLines
from rounddiag.loaders.tabular.table import Table, batch_from_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch
    from rounddiag.loaders.lazy.tensors import Value
    from rounddiag.loaders.source import Source, Span, SpanReader


# What numpy raises for a header that is no Python literal.
_BAD_HEADER = (ValueError, SyntaxError, TokenError, RecursionError, MemoryError)


def read_tensors(
    root: Table | JsonLines | Mapping[Any, object], source: Source
) -> Batch:
    """Build a batch from fields under verl's names or ours."""
    return batch_from_table(as_table(root, source), source)


def as_table(root: Table | JsonLines | Mapping[Any, object], source: Source) -> Table:
    """Return the content of a file as a table."""
    if isinstance(root, Table):
        return root
    return (
        table_from_lines(root)
        if isinstance(root, JsonLines)
        else _make_table(root, source)
    )


def _make_table(root: Mapping[Any, object], source: Source) -> Table:
    """Return the entries of a dictionary as a table; tensors come last."""
    tensors: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in root.items():
        field = _field(value, source)
        if field is None:
            others[str(key)] = stored_array(value, source) or value
        else:
            tensors[str(key)] = field
    return stored_table({**others, **tensors}, {}, {}, source)


def _field(value: object, source: Source) -> Value | None:
    array = stored_array(value, source)
    rows = array if isinstance(array, list) else value
    if isinstance(rows, list):
        numbers = rows_from_numbers(rows, source)
        return numbers or [find_tensor(row, source) or row for row in rows]
    return find_tensor(value, source) or _array(array)


def read_stored_rows(value: object, source: Source) -> Any:  # noqa: ANN401 rows
    """Copy the rows of a field out of the file; other values stay as they are."""
    if isinstance(value, list):
        rows = rows_from_numbers(value, source)
        return rows or [_row(row, source) for row in value]
    field = _field(value, source)
    return value if field is None else read_rows(field)


def _row(value: object, source: Source) -> object:
    tensor = find_tensor(value, source)
    return tensor.read() if isinstance(tensor, StoredTensor) else value


_TENSORS = (StoredTensor, Tensor)  # in the file, or made from a list in it


def read_rows(value: Value) -> Tensor | Ragged | list[Tensor]:
    """Copy a field out of the file."""
    match value:
        case StoredTensor():
            return value.read()
        case StoredJagged():
            lengths = None if value.lengths is None else value.lengths.read()
            return close_gaps(
                value.values.read(), value.offsets.read(), lengths, value.dim
            )
    return [_tensor(row) for row in value if isinstance(row, _TENSORS)]


def stored_table(
    fields: Mapping[str, Any],
    columns: Mapping[str, Any],
    info: Mapping[Any, Any],
    source: Source,
) -> Table:
    """Return the content of a file as a table."""
    dims = {name: _num_dims(value) for name, value in fields.items()}

    def read(name: str) -> object:
        match dims[name], fields[name]:
            case 0, StoredTensor() | StoredArray() as value:
                return value.read().item()
            case 0, value:
                return scalar_value(value)
            case 1, value:
                return read_column(value, source)
            case _, value:
                return read_rows(value)

    table = Table.classify(dims, read)
    facts = {str(k): scalar_value(v) for k, v in info.items()}
    return replace(
        table,
        columns={**columns, **table.columns},
        info={**facts, **table.info},
    )


def _num_dims(value: object) -> int:
    """Return 0 for a single value, 1 for one value per sample, 2 for rows."""
    if isinstance(value, StoredTensor):
        return min(len(value.shape), 2)
    if isinstance(value, StoredArray):  # of texts, or numbers that torch lacks
        return min(len(value.shape), 1)
    if isinstance(value, list):
        return 2 if all(map(_is_row, value)) else 1
    return 2 if isinstance(value, StoredJagged) else 0


def _is_row(value: object) -> bool:
    return isinstance(value, _TENSORS) and len(value.shape) > 0


def _tensor(row: StoredTensor | Tensor) -> Tensor:
    return row.read() if isinstance(row, StoredTensor) else row


def read_column(value: object, source: Source) -> Any:  # noqa: ANN401 array or list
    """Return a column of one value per sample, read from the file."""
    if isinstance(value, StoredTensor):
        return value.read().numpy()
    array = stored_array(value, source)
    if isinstance(array, StoredArray):
        return array.read()
    items = as_list(value if array is None else array)
    return [_plain_item(item, source) for item in items]


def _plain_item(item: object, source: Source) -> object:
    """Return a scalar of torch or numpy as a Python value; other values unchanged."""
    tensor = find_tensor(item, source)
    if isinstance(tensor, StoredTensor) and not tensor.shape:
        return tensor.read().item()
    return scalar_value(item)


def as_list(value: object) -> list[object]:
    """Return a value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def npz_root(entries: Mapping[str, Span]) -> dict[str, object]:
    """Return the arrays of an uncompressed `.npz`: a zip of arrays."""
    return {name.removesuffix(".npy"): _npy(span) for name, span in entries.items()}


def _npy(span: Span) -> StoredArray | list[object] | None:
    """Return an array that stays in the file; an object array is read as a pickle."""
    with span.open() as stream:
        try:
            shape, is_fortran, dtype = _npy_header(stream)
        except _BAD_HEADER as error:
            raise span.source.damage_error(
                found="an array without a good header"
            ) from error
        if dtype.hasobject:
            return stored_array(PickleMachine(span, stream).run(), span.source)
        if not dtype.itemsize:
            raise span.source.damage_error(
                found=f"an array of {dtype}, which has no size"
            )
        start = stream.tell()
    return StoredArray(
        data=span.part(start, len(span) - start),
        dtype=dtype,
        shape=shape,
        is_fortran=is_fortran,
    )


def _npy_header(stream: SpanReader) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    if np.lib.format.read_magic(stream) == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def _array(array: StoredArray | list[object] | None) -> Value | None:
    """Return an array as a tensor or as rows; None if torch lacks its dtype."""
    if not isinstance(array, StoredArray) or not array.shape:
        return None
    dtype = DTYPES.get(array.dtype.name)
    if dtype is None:
        return None
    if array.dtype.isnative and not array.is_fortran:
        return contiguous(array.data, dtype, array.shape)
    if len(array.shape) == 1:
        return None
    # torch has neither other byte orders nor Fortran's order of the elements.
    wide = np.int64 if array.dtype.kind == "u" else array.dtype.newbyteorder("=")
    return [torch.from_numpy(row) for row in array.read().astype(wide, order="C")]


TENSORS = Format(
    name="tensors under verl's names",
    framework="any",
    files=("*.pt", "*.pth", "*.npz", "*.safetensors", "*.jsonl", "*.feather"),
    keys=("rollout_log_probs", "old_log_probs"),
    read=read_tensors,
    verified="written by torch, numpy, safetensors, pyarrow and pandas",
)
DATASET = Format(
    name="a data set under verl's names, or others with `columns=`",
    framework="Hugging Face datasets",
    files=("data-*-of-*.arrow",),
    keys=("huggingface",),
    read=read_tensors,
    verified="written by datasets 5.2.0",
    in_parts=True,
)


_SAFETENSORS = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


def safetensors_root(source: Source) -> dict[str, object]:
    """Return the tensors of a safetensors file and its metadata, by name."""
    whole = source.whole()
    size = int.from_bytes(whole.part(0, 8).read(), "little")
    data = whole.part(8 + size, len(whole) - 8 - size)
    try:
        header = json.loads(whole.part(8, size).read())
    except (ValueError, RecursionError) as error:
        raise source.damage_error(
            found="a safetensors header that is not JSON"
        ) from error
    info = header.pop("__metadata__", {})
    tensors = {name: _safetensor(entry, data) for name, entry in header.items()}
    if sum(len(tensor.storage) for tensor in tensors.values()) > len(data):
        raise source.damage_error(found="tensors that overlap in a safetensors file")
    return {**(info if isinstance(info, dict) else {}), **tensors}


def _safetensor(entry: object, data: Span) -> StoredTensor:
    match entry:
        case {
            "dtype": str(kind),
            "shape": list(shape),
            "data_offsets": [int(start), int(stop)],
        } if kind in _SAFETENSORS:
            span = data.part(start, stop - start)
            sizes = integers(shape, data.source)
            return contiguous(span, DTYPES[_SAFETENSORS[kind]], sizes)
    raise data.source.damage_error(
        found="a tensor of an unknown kind in a safetensors header"
    )

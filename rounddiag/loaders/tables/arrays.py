"""Tensors by name, without a framework: a dictionary in a `.pt`, an `.npz`."""

from __future__ import annotations

from tokenize import TokenError
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.loaders.format import Format
from rounddiag.loaders.pickles.machine import PickleMachine
from rounddiag.loaders.records.json_lines import JsonLines
from rounddiag.loaders.tables.plain_rows import rows_of_numbers
from rounddiag.loaders.tables.stored_fields import stored_table
from rounddiag.loaders.tables.table import Table, batch_from_table
from rounddiag.loaders.tables.table_values import table_of_lines
from rounddiag.loaders.tensors.numpy_nodes import StoredArray, stored_array
from rounddiag.loaders.tensors.stored import DTYPES, StoredTensor, contiguous
from rounddiag.loaders.tensors.tensor_nodes import stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source, Span, SpanReader
    from rounddiag.loaders.tensors.tensordict import Value

# What numpy raises for headers that are no Python literals.
_BAD_HEADER = (ValueError, SyntaxError, TokenError, RecursionError, MemoryError)


def read_tensors(
    root: Table | JsonLines | Mapping[Any, object], source: Source
) -> Batch:
    """Build a batch from what a file holds under verl's names or ours."""
    return batch_from_table(table_of(root, source), source)


def table_of(root: Table | JsonLines | Mapping[Any, object], source: Source) -> Table:
    """Return what a file holds by name as a table."""
    if isinstance(root, Table):
        return root
    return (
        table_of_lines(root) if isinstance(root, JsonLines) else _stored(root, source)
    )


def _stored(root: Mapping[Any, object], source: Source) -> Table:
    """Divide a dictionary of tensors, arrays, lists and plain values."""
    fields: dict[str, Value] = {}
    columns: dict[str, Any] = {}
    info: dict[str, object] = {}
    for key, value in root.items():
        found = _field(value, source)
        if found is not None:
            fields[str(key)] = found
        elif not isinstance(array := stored_array(value, source), StoredArray):
            info[str(key)] = value
        elif array.shape:
            columns[str(key)] = array.read()
        else:
            info[str(key)] = array.read().item()
    return stored_table(fields, columns, info, source)


def _field(value: object, source: Source) -> Value | None:
    array = stored_array(value, source)
    rows = array if isinstance(array, list) else value
    if isinstance(rows, list):
        numbers = rows_of_numbers(rows, source)
        return numbers or [stored(row, source) or row for row in rows]
    return stored(value, source) or _array(array)


def npz_root(entries: Mapping[str, Span]) -> dict[str, object]:
    """Return the arrays of an uncompressed `.npz`: a zip of arrays."""
    return {name.removesuffix(".npy"): _npy(span) for name, span in entries.items()}


def _npy(span: Span) -> StoredArray | list[object] | None:
    """Return where the values of one array stand; objects are a pickle, read as one."""
    with span.open() as stream:
        try:
            shape, is_fortran, dtype = _npy_header(stream)
        except _BAD_HEADER as error:
            raise span.source.damaged(found="an array without a good header") from error
        if dtype.hasobject:
            return stored_array(PickleMachine(span, stream).run(), span.source)
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


def _array(array: StoredArray | list[object] | None) -> StoredTensor | None:
    """Return an array as a tensor, where torch has its dtype."""
    if not isinstance(array, StoredArray) or array.is_fortran or not array.shape:
        return None
    dtype = DTYPES.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative:
        return None
    return contiguous(array.data, dtype, array.shape)


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

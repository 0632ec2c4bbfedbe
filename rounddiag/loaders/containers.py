"""Open the content of a file, recognised by its first bytes and not by its name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from tokenize import TokenError
from typing import Any

import numpy as np

from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.packed import open_unpacked, unpack
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.signatures import UnknownContent, is_like_json, read_kind
from rounddiag.loaders.source import BUFFER, Source, Span, SpanReader, damage_error
from rounddiag.loaders.stored import (
    DTYPES,
    StoredArray,
    StoredJagged,
    contiguous,
    find_array,
    integers,
    numpy_array,
    read_tensordict,
)
from rounddiag.loaders.tables import LazyFields
from rounddiag.loaders.torch_file import LEGACY_MAGIC, open_zip, read_torch, zip_entries
from rounddiag.text.json_text import JsonError, parse_json
from rounddiag.wording import format_names


def open_container(source: Source) -> object:
    """Open the content of a file; large tensors stay in the file."""
    kind = read_kind(source)
    return kind if isinstance(kind, UnknownContent) else _READERS[kind](source)


def _packed(source: Source) -> object:
    """Open what is packed in a file; JSON is unpacked while it is read."""
    with open_unpacked(source) as stream:
        if is_like_json(stream.read(BUFFER)):
            return JsonLines(source)
    inner = unpack(source)
    kind = read_kind(inner)
    if kind in {"packed", "parquet", "arrow", "sqlite"}:
        return UnknownContent(f"a {kind} file in a packed one", (), "Unpack it first. ")
    return kind if isinstance(kind, UnknownContent) else _READERS[kind](inner)


def _parquet(source: Source) -> object:
    """Return the names in one of our files, or a table of any other Parquet file."""
    from rounddiag.loaders.arrow import parquet_table
    from rounddiag.loaders.parquet.reader import parquet_names

    names = parquet_names(source)
    return names if "rounddiag" in names else parquet_table(source)


def _arrow(source: Source) -> object:
    from rounddiag.loaders.arrow import arrow_table

    return arrow_table(source)


def _sqlite(source: Source) -> LazyFields:
    """Return the tables of a database by name, each with its rows when looked up.

    A database that a program still writes is read with its log, which lies beside it.
    """
    path = source.path.absolute()
    has_log = path.with_name(f"{path.name}-wal").exists()
    address = f"{path.as_uri()}?mode=ro{'' if has_log else '&immutable=1'}"

    def rows(query: str) -> list[dict[str, Any]]:
        try:
            with closing(sqlite3.connect(address, uri=True)) as database:
                database.row_factory = sqlite3.Row
                return [dict(row) for row in database.execute(query)]
        except sqlite3.Error as error:
            raise damage_error(
                found=f"a database that SQLite refuses: {error}"
            ) from error

    tables = rows("SELECT name FROM sqlite_master WHERE type = 'table'")
    # A name in quotes cannot end the query, and the database is read only.
    names = [str(table["name"]) for table in tables]
    queries = {
        name: 'SELECT * FROM "' + name.replace('"', '""') + '"'  # noqa: S608
        for name in names
    }
    return LazyFields(queries, lambda name: rows(queries[name]))


def _zip(source: Source) -> object:
    with open_zip(source.whole()) as archive:
        names = archive.namelist()
    if any(name.endswith("/data.pkl") for name in names):
        return _fields_or_root(read_torch(source.whole()))
    if names and all(name.endswith(".npy") for name in names):
        entries = zip_entries(source.whole())
        return {name.removesuffix(".npy"): _npy(span) for name, span in entries.items()}
    kind = f"a zip of another program, with {format_names(names)}"
    return UnknownContent(kind, tuple(names))


def _pickle(source: Source) -> object:
    """Read a pickle, or the older format of torch, which starts with a magic number."""
    span = source.whole()
    with span.open() as stream:
        root = PickleMachine(span, stream).run()
    root = read_torch(span) if root == LEGACY_MAGIC else root
    return _fields_or_root(root)


def _fields_or_root(root: object) -> object:
    fields = read_tensordict(root)
    return root if fields is None else fields


# What numpy raises for a header that is no Python literal.
_BAD_HEADER = (ValueError, SyntaxError, TokenError, RecursionError, MemoryError)


def _npy(span: Span) -> StoredArray | StoredJagged | list[object] | None:
    """Return an array that stays in the file; an object array is read as a pickle."""
    with span.open() as stream:
        try:
            shape, is_fortran, dtype = _npy_header(stream)
        except _BAD_HEADER as error:
            raise damage_error(found="an array without a good header") from error
        if dtype.hasobject:
            return find_array(PickleMachine(span, stream).run())
        if not dtype.itemsize:
            raise damage_error(found=f"an array of {dtype}, which has no size")
        start = stream.tell()
    data = span.part(start, len(span) - start)
    return numpy_array(data, dtype, shape, is_fortran=is_fortran)


def _npy_header(stream: SpanReader) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    if np.lib.format.read_magic(stream) == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


_SAFETENSORS = {
    "BOOL": "bool",
    "U8": "uint8",
    "F16": "float16",
    "BF16": "bfloat16",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F32": "float32",
    "F64": "float64",
}


def _safetensors(source: Source) -> dict[str, object]:
    whole = source.whole()
    size = int.from_bytes(whole.part(0, 8).read(), "little")
    data = whole.part(8 + size, len(whole) - 8 - size)
    try:
        header = parse_json(whole.part(8, size).read(), dict)
    except JsonError as error:
        raise damage_error(found=f"a safetensors header: {error}") from error
    info = header.pop("__metadata__", {})
    tensors = {name: _safetensor(entry, data) for name, entry in header.items()}
    if sum(len(tensor.storage) for tensor in tensors.values()) > len(data):
        raise damage_error(found="tensors that overlap in a safetensors file")
    return {**(info if isinstance(info, dict) else {}), **tensors}


def _safetensor(entry: object, data: Span) -> StoredArray:
    match entry:
        case {
            "dtype": str(kind),
            "shape": list(shape),
            "data_offsets": [int(start), int(stop)],
        } if kind in _SAFETENSORS:
            span = data.part(start, stop - start)
            sizes = integers(shape)
            return contiguous(span, DTYPES[_SAFETENSORS[kind]], sizes)
    raise damage_error(found="a tensor of an unknown kind in a safetensors header")


_READERS = {
    "safetensors": _safetensors,
    "zip": _zip,
    "pickle": _pickle,
    "parquet": _parquet,
    "arrow": _arrow,
    "sqlite": _sqlite,
    "json": JsonLines,
    "packed": _packed,
}

"""What a file holds, told by its first bytes."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rounddiag.loaders.files.unknown import (
    Unknown,
    is_weights,
    json_document,
    node_looks_like,
    unknown,
)
from rounddiag.loaders.pickles.inert import Node
from rounddiag.loaders.pickles.machine import PickleMachine
from rounddiag.loaders.records.json_lines import JsonLines
from rounddiag.loaders.tables.arrays import npz_root
from rounddiag.loaders.tables.plain_rows import columns_of_records
from rounddiag.loaders.tables.safetensors_file import safetensors_root
from rounddiag.loaders.tables.table import Table
from rounddiag.loaders.tensors.tensordict import read_tensordict
from rounddiag.loaders.tensors.torch_file import LEGACY_MAGIC, read_torch, zip_entries
from rounddiag.loaders.words import kind_of, shown

if TYPE_CHECKING:
    from rounddiag.loaders.source import Source


def read_root(source: Source) -> object:
    """Return what a file holds, big tensors excepted, which stay in it.

    Returns
    -------
    object
        A dictionary, list or `Node` of a pickle or torch file; a mapping of stored
        tensors; the names in our own Parquet; a `Table`; `JsonLines`; or `Unknown`.

    Raises
    ------
    LoadError
        If the file is damaged, or a pickle would call anything that is not known.
    """
    head = source.whole().part(0, min(16, source.size)).read()
    for start, read in _READERS:
        if head.startswith(start):
            return read(source)
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < source.size:
        return safetensors_root(source)
    if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return json_document(source) or JsonLines(source)
    return unknown(source)


def names_of(root: object) -> list[str]:
    """Return the names that tell the format: keys, or the class of an object."""
    match root:
        case JsonLines():
            return list(root.first)
        case Table():
            return [*root.names, *root.marks]
        case Unknown():
            return root.keys
        case Mapping():
            return [str(key) for key in root]
        case Node(name):
            return [name.rpartition(".")[2]]
    return []


def looks_like(root: object) -> str:
    """Say in a few words what a file holds."""
    match root:
        case Unknown():
            return root.looks_like
        case JsonLines():
            return f"JSON lines of {shown(root.first)}"
        case Table():
            return f"a table of {shown(root.names)}"
        case Mapping():
            named = f"a dictionary of {shown(root)}"
            return "weights of a model, no batch" if is_weights(root) else named
        case Node(name):
            return node_looks_like(name)
    return f"a pickle of {kind_of(root)}"


def _parquet(source: Source) -> object:
    """Return the names in our own file; a table of any other."""
    from rounddiag.loaders.parquet.reading import parquet_names
    from rounddiag.loaders.tables.arrow import parquet_table

    names = parquet_names(source)
    return names if "rounddiag" in names else parquet_table(source)


def _zip(source: Source) -> object:
    entries = zip_entries(source.whole())
    if any(name.endswith("/data.pkl") for name in entries):
        return _opened(read_torch(source.whole()), source)
    if entries and all(name.endswith(".npy") for name in entries):
        return npz_root(entries)
    return Unknown(f"a zip of {shown(entries)}")


def _arrow(source: Source) -> object:
    from rounddiag.loaders.tables.arrow import arrow_table

    return arrow_table(source)


def _opened(root: object, source: Source) -> object:
    """Return the fields of a TensorDict, records as columns; others as they are."""
    fields = read_tensordict(root, source)
    return columns_of_records(root, source) if fields is None else fields


def _pickle(source: Source) -> object:
    """Read a pickle, or the older format of torch, which starts with a magic number."""
    span = source.whole()
    with span.open() as stream:
        root = PickleMachine(span, stream).run()
    return _opened(read_torch(span) if root == LEGACY_MAGIC else root, source)


_READERS = (
    (b"PK\x03\x04", _zip),
    (b"\x80", _pickle),
    (b"PAR1", _parquet),
    (b"ARROW1", _arrow),
    (b"\xff\xff\xff\xff", _arrow),  # the stream form
)

"""Content that no loader reads, and what it looks like."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.loaders.pickles.inert import Node
from rounddiag.loaders.words import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rounddiag.loaders.records.json_lines import JsonLines
    from rounddiag.loaders.source import Source

TENSOR = "torch._utils._rebuild_tensor"
_ARRAYS = ("multiarray._reconstruct", "numeric._frombuffer")
_START = 1 << 16  # bytes of a document, which have its first keys
_ENOUGH = 3  # columns: a record has a list of lists here and there
_FIRST_KEY = re.compile(rb'\s*\{\s*\n([ \t]{1,8})"')
_OTHERS = (
    (b"<", "HTML or XML text"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\x93NUMPY", "a single numpy array"),
    (b"%PDF", "a PDF"),
)


_ROWS_OF_TEXT = re.compile(rb"[\x20-\x5a\x5c-\x7e]+,[^\r\n\0]*\r?\n[^\r\n\0]*,")
_NO_CSV = (
    "Lists of numbers need Parquet, Arrow, JSON lines, `.npz`, `.safetensors`, `.pt` or"
    " `.pkl`. "
)
_LINES = "JSON lines have a row a line; or pass what `json.load` makes of the file. "


class Unknown:
    """Content that no loader reads: what it looks like, its keys, and what helps."""

    def __init__(
        self, looks_like: str, keys: Iterable[str] = (), advice: str = ""
    ) -> None:
        self.looks_like, self.keys, self.advice = looks_like, list(keys), advice


def unknown(source: Source) -> Unknown:
    """Say what content looks like by its start."""
    start = source.whole().part(0, min(_START, source.size)).read()
    known = [what for first, what in _OTHERS if start.startswith(first)]
    if known:
        packed = known[0] in {"a gzip file", "a zstd file"}
        return Unknown(known[0], advice="Unpack it first. " * packed)
    if _ROWS_OF_TEXT.match(start):
        return Unknown("text with commas, as of a CSV file", advice=_NO_CSV)
    if start.lstrip().startswith(b"["):
        return Unknown("one JSON list", advice=_LINES)
    other = f"bytes that start with {start[:8]!r}" if start else "an empty file"
    return Unknown(other)


def is_weights(root: Mapping[Any, object]) -> bool:
    """Whether all values are tensors of fractions, under names with dots."""
    named = len(root) > 0 and all("." in str(key) for key in root)
    return named and all(_is_fractions(value) for value in root.values())


def _is_fractions(value: object) -> bool:
    if isinstance(value, Node) and value.name.startswith(TENSOR) and value.args:
        value = value.args[0]
    return getattr(getattr(value, "dtype", None), "is_floating_point", False) is True


def node_looks_like(name: str) -> str:
    """Say what an object of a pickle is, by its name."""
    if name.startswith(TENSOR):
        return "a single tensor"
    if name.endswith(_ARRAYS):
        return "a single numpy array"
    return f"a pickle of {name:.80}"


def json_document(source: Source) -> Unknown | None:
    """Return the first keys of one JSON document over many lines; else None."""
    start = source.whole().part(0, min(_START, source.size)).read()
    first = _FIRST_KEY.match(start)
    if first is None:
        return None
    key = rb'^%s"([^"\\]{1,80})"\s*:' % first[1]
    keys = [
        name.decode(errors="replace") for name in re.findall(key, start, re.MULTILINE)
    ]
    return Unknown(f"one JSON object of {shown(keys)}", keys, _LINES)


def one_object(lines: JsonLines) -> Unknown | None:
    """Tell a line that has all rows, column by column; else None."""
    tables = [name for name, value in lines.first.items() if _is_table(value)]
    if len(tables) < _ENOUGH:
        return None
    return Unknown(f"one JSON object of {shown(lines.first)}", lines.first, _LINES)


def _is_table(value: object) -> bool:
    return isinstance(value, list) and any(isinstance(row, np.ndarray) for row in value)

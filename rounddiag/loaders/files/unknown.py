"""Content that no loader reads, and what it looks like."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rounddiag.loaders.words import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rounddiag.loaders.source import Source

_START = 1 << 16  # bytes of a document, which have its first keys
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


class Unknown:
    """Content that no loader reads, what it looks like, and its keys."""

    def __init__(self, looks_like: str, keys: Iterable[str] = ()) -> None:
        self.looks_like, self.keys = looks_like, list(keys)


def unknown(head: bytes) -> Unknown:
    """Say what content looks like by its first bytes."""
    known = [what for start, what in _OTHERS if head.startswith(start)]
    other = f"bytes that start with {head[:8]!r}" if head else "an empty file"
    return Unknown(known[0] if known else other)


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
    return Unknown(f"a JSON document of {shown(keys)}", keys)

"""What a file is by its first bytes: content that a loader reads, or what else."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rounddiag.errors import LoadError
from rounddiag.loaders.packed import PACKINGS
from rounddiag.loaders.source import Source

# The first bytes of files that loaders read, and the kind of each.
KINDS = (
    (b"PK\x03\x04", "zip"),
    (b"\x80", "pickle"),
    (b"PAR1", "parquet"),
    (b"SQLite format 3\0", "sqlite"),
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "arrow"),  # the stream form
    *((start, "packed") for start in PACKINGS),
)
_START = 1 << 16  # bytes of a file that are searched for signatures
_OTHERS = (
    (b"<", "HTML or XML text"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\x93NUMPY", "a single numpy array"),
    (b"%PDF", "a PDF"),
)
_CSV = re.compile(rb"[\x20-\x5a\x5c-\x7e]+,[^\r\n\0]*\r?\n[^\r\n\0]*,")
_NO_CSV = (
    "Lists of numbers need Parquet, Arrow, JSON lines, `.npz`, `.safetensors`, `.pt` or"
    " `.pkl`. "
)


@dataclass(frozen=True)
class UnknownContent:
    """Content that no loader reads.

    Attributes
    ----------
    description: What it looks like.
    names: Its first keys, where it has any.
    advice: What to do about it.
    """

    description: str
    names: tuple[str, ...] = ()
    advice: str = ""


def read_kind(source: Source) -> str | UnknownContent:
    """Return the kind of content of a file, or a description of unknown content."""
    head = source.whole().part(0, min(16, source.size)).read()
    # safetensors goes first: a file of it starts with a length, which can be any bytes.
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < source.size:
        return "safetensors"
    if (kind := _signed(head, KINDS)) is not None:
        return kind
    start = source.whole().part(0, min(_START, source.size)).read()
    return "json" if is_like_json(start) else _describe_unknown(start)


def is_like_json(start: bytes) -> bool:
    """Return whether bytes start as an object or a list of JSON does."""
    return start.removeprefix(codecs.BOM_UTF8).lstrip().startswith((b"{", b"["))


def refuse_unknown(source: Source) -> None:
    """Raise the error that `load` raises for content without a name, before torch."""
    content = read_kind(source)
    if isinstance(content, UnknownContent) and not content.names:
        raise unknown_error(source, content.description, content.advice)


def unknown_error(
    source: Source, content: str, advice: str, more: str = "", code: Iterable[str] = ()
) -> LoadError:
    """Return the error for content that is no batch."""
    see = f"{advice}`rounddiag.formats()` lists what can be opened.{more}"
    return source.error(expected="a saved batch", found=content, advice=see, code=code)


def _signed(start: bytes, signatures: Iterable[tuple[bytes, str]]) -> str | None:
    kinds = (kind for signature, kind in signatures if start.startswith(signature))
    return next(kinds, None)


def _describe_unknown(start: bytes) -> UnknownContent:
    if (kind := _signed(start, _OTHERS)) is not None:
        return UnknownContent(kind)
    if _CSV.match(start):
        return UnknownContent("text with commas, as in a CSV file", advice=_NO_CSV)
    if not start:
        return UnknownContent("an empty file")
    return UnknownContent(f"bytes that start with {start[:8]!r}")

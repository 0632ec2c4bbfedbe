"""What a file is by its first bytes: content that a loader reads, or what else."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from rounddiag.errors import LoadError
from rounddiag.loaders.source import Source, format_names

ZSTD: Final = b"\x28\xb5\x2f\xfd"  # the first bytes of a file that zstd packed
# The first bytes of files that loaders read, and the kind of each.
KINDS = (
    (b"PK\x03\x04", "zip"),
    (b"\x80", "pickle"),
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "arrow"),  # the stream form
)
_START = 1 << 16  # bytes of a file that are searched for names and signatures
_FIRST_KEY = re.compile(rb'\s*\{\s*\n([ \t]{1,8})"')
_OTHERS = (
    (b"<", "HTML or XML text"),
    (b"\x1f\x8b", "a gzip file"),
    (ZSTD, "a zstd file"),
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
JSON_LINES = (
    "Write JSON lines, with one row per line, or pass what `json.load` makes of the"
    " file. "
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
    if head.startswith(ZSTD) and ".jsonl" in source.path.suffixes:
        return "json"
    start = source.whole().part(0, min(_START, source.size)).read()
    if head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
        return _json_document(start) or "json"
    return _describe_unknown(start)


def refuse_unknown(source: Source) -> None:
    """Raise the error that `load` raises for content without a name, before torch."""
    found = read_kind(source)
    if isinstance(found, UnknownContent) and not found.names:
        raise unknown_error(source, found.description, found.advice)


def unknown_error(source: Source, found: str, advice: str, more: str = "") -> LoadError:
    """Return the error for content that is no batch."""
    see = f"{advice}`rounddiag.formats()` lists what can be opened.{more}"
    return source.error(expected="a saved batch", found=found, advice=see)


def _signed(start: bytes, signatures: Iterable[tuple[bytes, str]]) -> str | None:
    found = (kind for signature, kind in signatures if start.startswith(signature))
    return next(found, None)


def _json_document(start: bytes) -> UnknownContent | None:
    """Return the first keys of one JSON document over many lines; else None."""
    first = _FIRST_KEY.match(start)
    if first is None:
        return None
    key = rb'^%s"([^"\\]{1,80})"\s*:' % first[1]
    keys = re.findall(key, start, re.MULTILINE)
    names = tuple(name.decode(errors="replace") for name in keys)
    return UnknownContent(
        f"one JSON object of {format_names(names)}", names, JSON_LINES
    )


def _describe_unknown(start: bytes) -> UnknownContent:
    if (kind := _signed(start, _OTHERS)) is not None:
        is_packed = kind in {"a gzip file", "a zstd file"}
        return UnknownContent(kind, advice="Unpack it first. " * is_packed)
    if _CSV.match(start):
        return UnknownContent("text with commas, as in a CSV file", advice=_NO_CSV)
    if start.lstrip().startswith(b"["):
        return UnknownContent("one JSON list", advice=JSON_LINES)
    if not start:
        return UnknownContent("an empty file")
    return UnknownContent(f"bytes that start with {start[:8]!r}")

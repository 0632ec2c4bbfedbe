"""What a file really holds, read from its footer and the headers of its pages.

A footer can claim less than the pages hold, and pyarrow believes the pages. pyarrow's
own view of the footer ends the process over some that are damaged, so it is not asked.
Names and numbers of fields are those of parquet-format's `parquet.thrift`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.thrift import Compact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3  # FileMetaData, RowGroup, ColumnChunk
_TYPE, _PATH, _CODEC, _TOTAL_COMPRESSED = 1, 3, 4, 7  # ColumnMetaData
_DATA_OFFSET, _DICTIONARY_OFFSET = 9, 11
_UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY, _DATA_V2 = 2, 3, 5, 7, 8  # PageHeader
_NUM_VALUES, _ENCODING, _ENCODING_V2 = 1, 2, 4  # the header of each kind of page
_WINDOWS = (
    1 << 8,
    1 << 16,
)  # bytes: a page header without statistics, and with long ones
_TAIL = 8  # bytes of the file's end: the size of the footer, and PAR1


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where the pages of one column stand in one row group.

    Attributes
    ----------
    path : str
        The column's path in the schema.
    type, codec : int
        Of the values and of their compression, by their numbers.
    start, stop : int
        Bytes of the file.
    """

    path: str
    type: int
    codec: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Page:
    """What the header of a page says.

    Attributes
    ----------
    num_values : int
        Values, nulls among them.
    size : int
        Bytes when decompressed.
    encoding : int or None
        Of the values, by its number; None for a dictionary.
    start, stop : int
        Where it stands in the file, compressed.
    """

    num_values: int
    size: int
    encoding: int | None
    start: int
    stop: int


def chunks_of(stream: BinaryIO) -> Iterator[Chunk]:
    """Yield what the footer says of each column of each row group.

    Raises
    ------
    LookupError, TypeError, ValueError
        If the footer is damaged.
    """
    stop = stream.seek(-_TAIL, 2)
    size = int.from_bytes(stream.read(_TAIL)[:4], "little")
    stream.seek(stop - size)
    footer = Compact(stream.read(size))
    for field, kind in footer.fields():
        if field != _ROW_GROUPS:
            footer.value(kind)
            continue
        for _ in footer.items():
            yield from _columns(footer)


def pages_of(stream: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """Yield the pages of a column of a row group.

    Raises
    ------
    LoadError, LookupError, TypeError, ValueError
        If a header is damaged.
    """
    at = chunk.start
    while at < chunk.stop:
        header, size = _header(stream, at)
        page = _page(header, at + size)
        yield page
        at = page.stop


def _columns(footer: Compact) -> Iterator[Chunk]:
    for field, kind in footer.fields():
        if field != _COLUMNS:
            footer.value(kind)
            continue
        for item in footer.items():
            meta = footer.value(item)[_META_DATA]
            # 0 where there is no such page: a group of no rows has no data.
            offsets = (meta.get(_DICTIONARY_OFFSET), meta[_DATA_OFFSET])
            start = min((offset for offset in offsets if offset), default=0)
            yield Chunk(
                path=b".".join(meta[_PATH]).decode(),
                type=meta[_TYPE],
                codec=meta[_CODEC],
                start=start,
                stop=start + meta[_TOTAL_COMPRESSED],
            )


def _page(header: dict[int, Any], start: int) -> Page:
    kind = next((k for k in (_DATA, _DATA_V2, _DICTIONARY) if k in header), None)
    sizes = (header[_UNCOMPRESSED], header[_COMPRESSED])
    inner = {_NUM_VALUES: 0} if kind is None else header[kind]
    if min(*sizes, inner[_NUM_VALUES]) < 0:
        raise _damaged(header)
    encoding = {_DATA: inner.get(_ENCODING), _DATA_V2: inner.get(_ENCODING_V2)}
    return Page(
        num_values=inner[_NUM_VALUES],
        size=sizes[0],
        encoding=encoding.get(kind or _DICTIONARY),
        start=start,
        stop=start + sizes[1],
    )


def _header(stream: BinaryIO, at: int) -> tuple[dict[int, Any], int]:
    for window in _WINDOWS:
        stream.seek(at)
        reader = Compact(stream.read(window))
        try:
            return reader.struct(), reader.at
        except IndexError:
            continue
    raise _damaged(at)


def _damaged(found: object) -> LoadError:
    return LoadError.build(
        expected="the header of a page",
        found=f"{found!s:.80}",
        advice="The file is cut off, damaged or forged: copy or save it again.",
    )

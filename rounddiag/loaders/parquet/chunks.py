"""Where the columns of a file stand, read from its footer.

pyarrow's own view of these ends the process over some footers that are damaged, so it
is not asked. Names and numbers of fields are those of parquet-format's
`parquet.thrift`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rounddiag.loaders.parquet.thrift import Compact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3  # FileMetaData, RowGroup, ColumnChunk
_TYPE, _PATH, _CODEC, _TOTAL_COMPRESSED = 1, 3, 4, 7  # ColumnMetaData
_DATA_OFFSET, _DICTIONARY_OFFSET = 9, 11
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

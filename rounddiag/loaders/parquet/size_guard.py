"""How much memory a file may take: small files that claim to be huge are refused.

Masks, ids of image tokens and log-probs of 0 compress well, so a real batch can be tens
of times its file: 44 times was measured where one token in twenty is generated. Made to
exhaust a reader, a file is a thousand times smaller than what it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rounddiag.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO


_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_INTEGERS = (4, 5, 6)
_BITS = 64  # of a number
_LONG = 15  # the size of a list that stands in bytes of its own


class Compact:
    """Reads values one after another; an IndexError where the bytes end too early.

    Parameters
    ----------
    data : bytes

    Attributes
    ----------
    at : int
        Where the next value starts.

    Examples
    --------
    >>> Compact(bytes([0x15, 6, 0x18, 1, 65, 0])).struct()
    {1: 3, 2: b'A'}
    """

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self) -> dict[int, Any]:
        """Return the fields of a struct by their numbers."""
        return {field: self.value(kind) for field, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and kind of each field; read its value before the next one."""
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            yield field, head & 15

    def value(self, kind: int) -> Any:  # noqa: ANN401 of many kinds
        """Return a value; a list of anything but texts is passed over.

        Raises
        ------
        ValueError
            If Parquet has nothing of that kind.
        """
        if kind in _INTEGERS:
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind == _LIST:
            return self._list()
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind not in (_BYTE, _DOUBLE):
            msg = f"a field of kind {kind}"
            raise ValueError(msg)
        return self._take(1 if kind == _BYTE else 8)

    def items(self) -> Iterator[int]:
        """Yield the kind of each item of a list; read it before the next one."""
        head = self._byte()
        size = self._varint() if head >> 4 == _LONG else head >> 4
        kind = head & 15
        for _ in range(size):
            yield _BYTE if kind in (_TRUE, _FALSE) else kind

    def _list(self) -> list[bytes] | None:
        texts = []
        for kind in self.items():
            item = self.value(kind)
            if kind == _BINARY:
                texts.append(item)
        return texts or None

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, _BITS, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 the bit that says there is more
                return value
        msg = f"a number of more than {_BITS} bits"
        raise ValueError(msg)

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _take(self, size: int) -> bytes:
        self.at += size
        return self._data[self.at - size : self.at]


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


_UNCOMPRESSED, _COMPRESSED, _DATA, _DICTIONARY, _DATA_V2 = 2, 3, 5, 7, 8  # PageHeader
_NUM_VALUES, _ENCODING, _ENCODING_V2 = 1, 2, 4  # the header of each kind of page
# Bytes of a page header without statistics, and with long ones.
_WINDOWS = (1 << 8, 1 << 16)


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


# By their numbers in parquet.thrift.
BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY = 6, 7
_PLAIN = 0
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_PREFIX = 4  # bytes of the length before a value


def longest_value(stream: BinaryIO, chunk: Chunk, page: Page) -> int:
    """Return how many bytes the longest value of a dictionary has, or may have.

    Raises
    ------
    ArrowException
        If it is not compressed as it says.
    """
    if chunk.type == FIXED_LEN_BYTE_ARRAY:
        return page.size // max(page.num_values, 1)
    if chunk.codec not in {_PLAIN, *_CODECS}:
        return page.size
    stream.seek(page.start)
    data = stream.read(page.stop - page.start)
    if chunk.codec != _PLAIN:
        data = pa.decompress(data, page.size, _CODECS[chunk.codec], asbytes=True)
    longest = at = 0
    for _ in range(page.num_values):
        size = int.from_bytes(data[at : at + _PREFIX], "little")
        longest, at = max(longest, size), at + _PREFIX + size
    return min(longest, page.size)


_FREE, _RATIO = 150_000_000, 64
_NUMBER, _OBJECT = 8, 64  # bytes of a value in a tensor, and of a Python object
ROW, PICTURE = 1000, 600  # bytes of the objects that stand for them
_PAGE = 1000  # bytes to read a page at all: a file of empty pages must end too
# Encodings in which few bytes can stand for a long value: one of the dictionary, or one
# as long as the page.
_DICTIONARIES, _PREFIXES = (2, 8), 7


def check_size(file: Path, wanted: Callable[[Chunk], bool]) -> None:
    """Refuse a file whose pages take too much once they are read.

    Parameters
    ----------
    file : Path
    wanted : callable
        Whether a column will be read.

    Raises
    ------
    LoadError
    """
    with file.open("rb") as stream:
        chunks = filter(wanted, chunks_of(stream))
        check_weights(file, (w for chunk in chunks for w in _weights(stream, chunk)))


def check_weights(file: Path, weights: Iterable[int]) -> None:
    """Refuse a file of which more than 150 MB and 64 times the file become values.

    Parameters
    ----------
    file : Path
    weights : iterable of int
        Bytes; no more of them are asked for once there are too many.

    Raises
    ------
    LoadError
    """
    size = file.stat().st_size
    most = max(_FREE, _RATIO * size)
    total = 0
    for weight in weights:
        total += weight
        if total > most:
            raise LoadError.build(
                expected=f"at most {most} bytes of values in {size} bytes of file",
                found="more",
                advice="It is made to exhaust memory; save a real batch in parts.",
            )


def _weights(stream: BinaryIO, chunk: Chunk) -> Iterator[int]:
    """Yield about how many bytes each page takes once it is read."""
    if chunk.type in (BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY):
        yield from _text_weights(stream, chunk)
        return
    for page in pages_of(stream, chunk):
        yield _PAGE + max(page.size, _NUMBER * page.num_values)


def _text_weights(stream: BinaryIO, chunk: Chunk) -> Iterator[int]:
    longest = 0
    for page in pages_of(stream, chunk):
        yield _PAGE + page.size + _OBJECT * page.num_values
        if page.encoding is None:
            longest = longest_value(stream, chunk, page)
        elif page.encoding in _DICTIONARIES:
            yield longest * page.num_values
        elif page.encoding == _PREFIXES:
            yield page.size * page.num_values

"""What the pages of a file really hold, read from their own headers.

A footer can claim less than the pages hold, and pyarrow believes the pages. Names and
numbers of fields are those of parquet-format's `parquet.thrift`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.thrift import Compact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

    from rounddiag.loaders.parquet.chunks import Chunk

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

"""How long the values are that pages of texts take from their dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from typing import BinaryIO

    from rounddiag.loaders.parquet.chunks import Chunk
    from rounddiag.loaders.parquet.pages import Page

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

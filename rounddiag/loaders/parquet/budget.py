"""How much memory a file may take: small files that claim to be huge are refused.

Masks, ids of image tokens and log-probs of 0 compress well, so a real batch can be tens
of times its file: 44 times was measured where one token in twenty is generated. Made to
exhaust a reader, a file is a thousand times smaller than what it holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.chunks import chunks_of
from rounddiag.loaders.parquet.dictionaries import (
    BYTE_ARRAY,
    FIXED_LEN_BYTE_ARRAY,
    longest_value,
)
from rounddiag.loaders.parquet.pages import pages_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from rounddiag.loaders.parquet.chunks import Chunk

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

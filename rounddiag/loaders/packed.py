"""Files packed by gzip or zstd: unpacked while they are read.

What is inside has no limit of its own. `load(untrusted=True)` reads in a process whose
memory and time are limited: a small file that unpacks to a large one ends there.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from rounddiag.loaders.source import Source, damage_error

# The first bytes of a packed file, and what packed it.
PACKINGS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


def packing(source: Source) -> str | None:
    """Return what packed a file: `gzip`, `zstd` or None."""
    head = source.whole().part(0, min(4, source.size)).read()
    names = (name for start, name in PACKINGS.items() if head.startswith(start))
    return next(names, None)


@contextmanager
def open_unpacked(source: Source) -> Iterator[IO[bytes]]:
    """Open a file, or what is packed in it."""
    import pyarrow as pa

    name = packing(source)
    with io.BufferedReader(source.open()) as stream:
        if name is None:
            yield stream
            return
        try:
            with pa.CompressedInputStream(stream, name) as unpacked:
                yield io.BufferedReader(unpacked)
        except OSError as error:
            fault = f"bytes that {name} cannot unpack: {error!s:.80}"
            raise damage_error(found=fault, file=source.path) from error


def unpack(source: Source) -> Source:
    """Return what is packed in a file, in memory."""
    with open_unpacked(source) as stream:
        return source.of_bytes(stream.read())

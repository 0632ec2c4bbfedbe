"""What the tests of bad files share."""

from __future__ import annotations

import signal
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rounddiag.errors import LoadError
from rounddiag.loaders import load


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + len(raw).to_bytes(4, "little") + raw


@contextmanager
def an_end() -> Iterator[None]:
    """End what hangs."""

    def late(*_: object) -> None:
        msg = "still at it after 20 s"
        raise TimeoutError(msg)

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def refused(path: Path, content: bytes) -> str:
    """Return the message of the LoadError that this content ends in."""
    path.write_bytes(content)
    return refused_file(path)


def refused_file(path: Path) -> str:
    """Return the message of the LoadError that a file ends in; at most 64 MB for it."""
    tracemalloc.start()
    try:
        with an_end(), pytest.raises(LoadError) as caught:
            load(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 64_000_000
    assert "unexpected error" not in str(caught.value)
    return str(caught.value).removeprefix(f"{path}: ")

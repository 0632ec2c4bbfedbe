"""What `load(untrusted=True)` says of each kind of hostile file, seconds and memory.

    python -m tests.benchmarks.hostile_files [SIZE] [WORD OF A KIND ...]

Prints a table. Seconds include the start of the child, about 3 s; memory is the most
that this file's child held, of which the libraries take about 300 MB.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING
from unittest.mock import patch

import rounddiag as rd
from rounddiag.errors import LoadError
from tests.loaders.hostile_files import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable


class Measured(subprocess.Popen[bytes]):
    """A process of which the most memory it held is known when it has ended."""

    num_bytes = 0  # of the last one

    def _try_wait(self, flags: int) -> tuple[int, int]:
        process, status, used = os.wait4(self.pid, flags)
        if process:
            Measured.num_bytes = used.ru_maxrss * (
                1 if sys.platform == "darwin" else 1024
            )
        return process, status


def main(size: float, words: list[str]) -> None:
    """Print a row for each kind."""
    print("| kind | bytes | seconds | MB | message |")
    print("|---|--:|--:|--:|---|", flush=True)  # before a fork
    for kind, (name, write) in KINDS.items():
        if words and not any(word in kind for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            in_a_fork(partial(write, path, size))
            in_a_fork(partial(print_row, kind, path))


def print_row(kind: str, path: Path) -> None:
    start = perf_counter()
    message = open_untrusted(path)
    took, most = perf_counter() - start, Measured.num_bytes / 1e6
    facts = f"{path.stat().st_size:,} | {took:.1f} | {most:,.0f}"
    print(f"| {kind} | {facts} | {message:.150} |", flush=True)


def in_a_fork(act: Callable[[], object]) -> None:
    """Do it apart: the memory of a child counts from the most that its parent held."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def open_untrusted(path: Path) -> str:
    with patch.object(subprocess, "Popen", Measured):
        try:
            return repr(rd.load(path, untrusted=True))
        except LoadError as error:
            return str(error).removeprefix(f"{path}: ")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1, sys.argv[2:])

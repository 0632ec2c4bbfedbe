"""What `load(untrusted=True)` says of each kind of hostile file, seconds and memory.

    python -m tests.benchmarks.hostile_files [SIZE] [WORD OF A KIND ...]

Prints a table. Seconds include the start of the child, about 3 s; those of the
processor are this process's alone. Memory in MB: the most that this file's child held,
of which the libraries take about 300; the most by which this process grew; and what the
batch takes. `load` promises that growth is at most the batch, four times the file and
300 MB, and seconds the limit and 15: rows that break this end in a cross.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING
from unittest.mock import patch

import rounddiag as rd
from rounddiag.errors import LoadError
from rounddiag.loaders.untrusted.weight import batch_bytes
from tests.loaders import heavy_files, hostile_files
from tests.loaders.wide_files import own

if TYPE_CHECKING:
    from collections.abc import Callable

    from rounddiag import Batch

KINDS = {**hostile_files.KINDS, **heavy_files.KINDS}
LIMIT, ROOM = 60, 300  # seconds, and MB, of the promise of `load`


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
    columns = "bytes | seconds | processor | child | growth | batch"
    print(f"| kind | {columns} | message | |")
    print("|---|--:|--:|--:|--:|--:|--:|---|---|", flush=True)  # before a fork
    for kind, (name, write) in KINDS.items():
        if words and not any(word in kind for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            in_a_fork(partial(write, path, size))
            in_a_fork(partial(print_row, kind, path))


def print_row(kind: str, path: Path) -> None:
    warm_up(path.with_name("warm.parquet"))
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    start, began = perf_counter(), process_time()
    found = open_untrusted(path)
    took, own = perf_counter() - start, process_time() - began
    most, child = memory("VmHWM") - before, Measured.num_bytes / 1e6
    batch = batch_bytes(found) / 1e6 if isinstance(found, rd.Batch) else 0
    size = path.stat().st_size
    holds = took <= LIMIT + 15 and most <= batch + 4 * size / 1e6 + ROOM
    facts = f"{size:,} | {took:.1f} | {own:.1f} | {child:,.0f} | {most:,.0f}"
    message = str(found).removeprefix(f"{path}: ")
    sign = "" if holds else "\N{BALLOT X}"
    print(f"| {kind} | {facts} | {batch:,.0f} | {message:.150} | {sign} |", flush=True)


def warm_up(path: Path) -> None:
    """Import what reading imports, which is no cost of a file."""
    rd.save(own(1), path)
    rd.load(path, untrusted=True)


def memory(name: str) -> float:
    """Return an entry of this process's status in MB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    entries = dict(line.split(":", 1) for line in lines)
    return int(entries[name].split()[0]) * 1024 / 1e6


def in_a_fork(act: Callable[[], object]) -> None:
    """Do it apart: the memory of a child counts from the most that its parent held."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def open_untrusted(path: Path) -> Batch | Exception:
    with patch.object(subprocess, "Popen", Measured):
        try:
            return rd.load(path, untrusted=True)
        except Exception as error:  # noqa: BLE001 all but a LoadError are faults
            is_foreseen = isinstance(error, LoadError)
            return error if is_foreseen else RuntimeError(f"RAW {error!r:.150}")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1, sys.argv[2:])

"""What `load(untrusted=True)` says of each kind of hostile file, seconds and memory.

    python -m tests.benchmarks.hostile_files [SIZE] [WORD OF A KIND ...]

Seconds include the start of the child. Memory is the most that any child held so far
(Linux and macOS keep the maximum of all children), in MB.
"""

from __future__ import annotations

import resource
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import rounddiag as rd
from rounddiag.errors import LoadError
from tests.loaders.hostile_files import KINDS


def main(size: float, words: list[str]) -> None:
    """Print a row for each kind."""
    for kind, (name, write) in KINDS.items():
        if words and not any(word in kind for word in words):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            write(path, size)
            num_bytes = path.stat().st_size
            start = perf_counter()
            try:
                said = repr(rd.load(path, untrusted=True))
            except LoadError as error:
                said = str(error).removeprefix(f"{path}: ")
            took = perf_counter() - start
        own, child = (
            resource.getrusage(who).ru_maxrss // 1024
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )
        print(
            f"{kind:32}{num_bytes:>12,}{took:7.1f} s {own:6} {child:6} MB  {said:.110}",
            flush=True,
        )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 1, sys.argv[2:])

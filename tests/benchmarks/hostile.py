"""Memory and time of `load(path, untrusted=True)` on hostile files, 40 kinds.

    python -m tests.benchmarks.hostile [--size 1] [--memory 4] [--time 60] [KIND ...]

Each kind is written at its full size, in a process of its own, and loaded in another
one. Peaks are of the process that asked, beside what it had before, and of the child
that read, its libraries among them. Ends with 1 where the bounds that `load` states do
not hold: if the first is above the memory limit, or the time 15 s above its own; or if
the error is of another kind.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rounddiag as rd
from rounddiag.errors import RounddiagError
from tests.loaders import heavy_files, hostile_files

if TYPE_CHECKING:
    from collections.abc import Callable

GB = 1e9
KINDS: dict[str, tuple[str, Callable[[Path, float], object]]] = {
    **hostile_files.KINDS,
    **heavy_files.KINDS,
    "pickle, integers": (
        "a.pkl",
        lambda path, size: path.write_bytes(
            hostile_files.PROTO + b"]" + b"(" + b"K\x01" * int(30e6 * size) + b"e."
        ),
    ),
}


def in_child(work: Callable[[], object]) -> Any:
    """Return what a forked process found; None if it ended without a word."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        found = work()
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        answer = stream.read()
    os.waitpid(pid, 0)
    return json.loads(answer) if answer else None


def load(path: Path, memory: float, seconds: float) -> dict[str, Any]:
    """Load a file; return what became of it, and what it cost."""
    # A forked process starts with the peak of its parent.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident()
    begin = time.monotonic()
    try:
        batch = rd.load(path, untrusted=True, memory_limit=memory, time_limit=seconds)
        found = f"{batch.num_samples:,} samples"
    except RounddiagError as error:
        found = f"{type(error).__name__}: {str(error).partition('expected')[2]:.90}"
    except BaseException as error:  # noqa: BLE001 the fault that is looked for
        found = f"RAW {type(error).__name__}: {error!s:.90}"
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / GB
    spent = time.monotonic() - begin
    own = peak() - before
    return {"found": found, "own": own, "child": child, "seconds": spent}


def resident() -> float:
    return _status("VmRSS")


def peak() -> float:
    return _status("VmHWM")


def _status(name: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(one for one in text.splitlines() if one.startswith(name))
    return int(line.split()[1]) * 1024 / GB


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=[*KINDS])
    parser.add_argument("--size", type=float, default=1.0)
    parser.add_argument("--memory", type=float, default=4.0, help="GB")
    parser.add_argument("--time", type=float, default=60.0, help="seconds")
    options = parser.parse_args()
    num_bad = 0
    for kind in options.kinds:
        name, write = KINDS[kind]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            in_child(lambda: write(path, options.size) and None)  # noqa: B023 at once
            if not path.exists():
                print(f"????  {kind}: not written", flush=True)
                continue
            size = path.stat().st_size / 1e6
            one = in_child(lambda: load(path, options.memory, options.time))  # noqa: B023 at once
        is_bad = one is None or (
            one["found"].startswith("RAW")
            or one["own"] > options.memory
            or one["seconds"] > options.time + 15
        )
        num_bad += is_bad
        cost = "no answer"
        if one is not None:
            cost = f"{one['own']:.2f} GB, child {one['child']:.2f} GB,"
            cost += f" {one['seconds']:.1f} s | {one['found']}"
        print(
            f"{'BAD ' if is_bad else 'ok  '} {kind} ({size:.1f} MB): {cost}", flush=True
        )
    print(f"{len(options.kinds)} kinds, {num_bad} beyond the bounds")
    return min(num_bad, 1)


if __name__ == "__main__":
    sys.exit(main())

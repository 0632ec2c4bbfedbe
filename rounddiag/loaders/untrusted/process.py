"""The child process: start it, wait for it, and end it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from rounddiag.loaders.untrusted.folder import read_end

if TYPE_CHECKING:
    from rounddiag.loaders.untrusted.limits import Limits


# Seconds beyond the time limit: the child starts, and ends if it does not end itself.
_GRACE = 12
_PAUSE = 0.2  # seconds between two checks of the child's memory, on macOS
_CODE = "from rounddiag.loaders.untrusted.child import main; main()"
_OUTPUT = "output"
_MAX_OUTPUT = 4000  # bytes
# One thread, because each reserves address space. Arrow's own allocators reserve 1 GB.
_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "ARROW_IO_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def run_child(folder: Path, limits: Limits) -> tuple[int | None, str]:
    """Run `child.main` in a new process, in the folder with its request."""
    # Neither the file's folder nor the working directory is searched for modules.
    search = [*filter(None, sys.path), str(Path(__file__).parents[3])]
    with (folder / _OUTPUT).open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 our own code
            [sys.executable, "-c", _CODE],
            cwd=folder,
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(search)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
    try:
        code = _wait(process, limits)
    finally:
        process.kill()
        # With a timeout, it asks again and again. Without one, and where SIGCHLD is
        # ignored, the system waits until every child of this process has ended.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=_GRACE)
    text = read_end(folder / _OUTPUT, _MAX_OUTPUT).decode(errors="replace")
    return code, text


def _wait(process: subprocess.Popen[bytes], limits: Limits) -> int | None:
    """Wait for the child. On macOS, which has no memory limit, watch its memory."""
    is_watched = sys.platform == "darwin"
    end = monotonic() + limits.time + _GRACE
    while (left := end - monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=min(left, _PAUSE) if is_watched else left)
        if is_watched and resident_bytes(process.pid) > limits.num_bytes:
            return -signal.SIGKILL
    return None


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process; 0 if it has ended."""
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 our own
    return 1024 * int(done.stdout.strip() or 0)

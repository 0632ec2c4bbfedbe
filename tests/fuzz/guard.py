"""Opens one file under guard: nothing runs, nothing hangs, nothing eats the memory."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from rounddiag import load, round_frame, token_frame
from rounddiag.errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rounddiag import Batch

    Columns = dict[str, str] | None

T = TypeVar("T")
SECONDS = 10
ROOM = 200_000_000  # bytes that opening may take beside 4 times the file
_SHOTS = 3  # screenshots decoded of each batch
# What code that a file smuggled in would do; `pickle.find_class` is its way in.
_FORBIDDEN = (
    "ctypes.",
    "os.chmod",
    "os.exec",
    "os.fork",
    "os.listxattr",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.spawn",
    "os.system",
    "pickle.find_class",
    "shutil.",
    "socket.",
    "subprocess.",
    "urllib.",
)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a file.

    `fault` is empty for a batch and for a LoadError that was foreseen.
    """

    is_batch: bool
    fault: str
    seconds: float
    extra_bytes: int


class Hang(BaseException):
    """Raised by the alarm; no `except Exception` may swallow it."""


class Guard:
    """Watches one folder's files being opened; make one a process.

    Python's audit events tell of files opened elsewhere and of everything that code
    would do. Hooks cannot be taken away again, so this belongs in a process of its own.
    """

    def __init__(self, folder: Path) -> None:
        self.seen: list[str] = []
        self._folder, self._is_on = str(folder), False
        self._readable = (self._folder, sys.prefix, sys.base_prefix, "/usr/", "/lib")
        sys.addaudithook(self._hear)
        signal.signal(signal.SIGALRM, _hang)

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if not self._is_on:
            return
        if event == "open" and not self._may_open(args):
            self.seen.append(f"open {args[0]!r} {args[1]!r}")
        elif event.startswith(_FORBIDDEN):
            self.seen.append(f"{event} {args!r:.200}")

    def _may_open(self, args: tuple[object, ...]) -> bool:
        path, mode, *_ = args
        if not isinstance(path, (str, Path)):
            return True  # a file that is open already
        reads = mode is None or not set(str(mode)) & set("wax+")
        return reads and str(path).startswith(self._readable)

    def open(self, path: Path, size: int, columns: Columns = None) -> Outcome:
        """Load a file, build its frames and decode some screenshots."""
        self.seen.clear()
        before, start = _memory_reset(), perf_counter()
        batch, fault = self._watched(partial(load, columns=columns), path)
        extra = _most_memory() - before
        if batch is not None:
            _, fault = self._watched(_use, batch)
        if not fault and extra > 4 * size + ROOM:
            fault = f"memory: {extra} bytes for a file of {size}"
        if self.seen:
            fault = f"audit: {self.seen[:3]}"
        return Outcome(
            is_batch=batch is not None,
            fault=fault[:600],
            seconds=perf_counter() - start,
            extra_bytes=max(extra, 0),
        )

    def _watched(self, do: Callable[[Any], T], what: object) -> tuple[T | None, str]:
        """Return what a step gives, and the fault it ends in, if it does."""
        signal.alarm(SECONDS)
        self._is_on = True
        try:
            return do(what), ""
        except LoadError as error:
            return None, str(error) if "unexpected error" in str(error) else ""
        except (Exception, Hang) as error:  # noqa: BLE001 any of them is a fault
            return None, f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
            self._is_on = False


def _hang(*_: object) -> None:
    msg = f"still at it after {SECONDS} s"
    raise Hang(msg)


def _use(batch: Batch) -> None:
    """Do what a view does first; a batch that is right lets it."""
    token_frame(batch)
    round_frame(batch)
    for shot in [shot for row in batch.images or () for shot in row][:_SHOTS]:
        with suppress(LoadError):
            shot.image()


def _memory_reset() -> int:
    """Let the kernel measure the peak anew; return what is in use now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _most_memory()


def _most_memory() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

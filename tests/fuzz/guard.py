"""Opens one file as a stranger's, under guard: it does nothing but read.

`load(untrusted=True)` reads it in a child process; a fork stands in for that, in which
Python's audit events are heard.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from PIL import Image

import rounddiag
import rounddiag.loaders.parquet
from rounddiag import Batch, load, round_frame, token_frame
from rounddiag.errors import LoadError
from rounddiag.loaders.untrusted import Limits, guard
from tests.fuzz.forked import ESCAPED, Forked, fork

Columns = dict[str, str] | None

SECONDS = 10
MEMORY = 0.4  # GB that reading may take
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

    Attributes
    ----------
    kind : {"batch", "refused", "limit", "crash", "fault"}
        Refused by the loader; ended by a limit; ended inside a library.
    message : str
        The error, or what is wrong with the loader.
    seconds : float
    extra_bytes : int
        What the child took in addition.
    """

    kind: str
    message: str
    seconds: float
    extra_bytes: int


class Hang(BaseException):
    """Raised by the alarm; no `except Exception` may swallow it."""


class Guard:
    """Watches one folder's files being opened; make one a process.

    Hooks cannot be taken away again, so this belongs in a process of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._own, self._log = str(folder), str(folder), -1
        package = str(Path(rounddiag.__file__).parent)
        system = ("/usr/", "/lib", "/proc/self/")
        self._readable = (package, sys.prefix, sys.base_prefix, *system)
        self._seen: list[str] = []
        self._child = Forked(code=0, output="", num_bytes=0)
        Image.init()  # what every fork would have to do
        sys.addaudithook(self._hear)
        signal.signal(signal.SIGALRM, _hang)
        vars(guard)["run_child"] = self._run_child

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if self._log >= 0 and self._is_bad(event, args):
            log, self._log = self._log, -1
            os.write(log, f"{event} {args!r:.200}\n".encode(errors="replace"))
            self._log = log

    def _is_bad(self, event: str, args: tuple[object, ...]) -> bool:
        if event == "open":
            return not self._may_open(args)
        return event.startswith(_FORBIDDEN) and not self._is_own(args)

    def _is_own(self, args: tuple[object, ...]) -> bool:
        """Whether it concerns the folder where the child answers, alone."""
        paths = [str(arg) for arg in args if isinstance(arg, str | Path)]
        return bool(paths) and all(path.startswith(self._own) for path in paths)

    def _may_open(self, args: tuple[object, ...]) -> bool:
        path, mode, *_ = args
        if not isinstance(path, str | Path) or self._is_own((path,)):
            return True  # a file that is open already, or its answer
        reads = mode is None or not set(str(mode)) & set("wax+")
        return reads and str(path).startswith((self._folder, *self._readable))

    def _run_child(self, folder: Path, _: Limits) -> tuple[int, str]:
        log = folder / "heard"
        log.touch()
        self._child = fork(folder, self._heard(folder, log))
        self._seen = log.read_text(errors="replace").splitlines()
        return self._child.code, self._child.output

    @contextmanager
    def _heard(self, folder: Path, log: Path) -> Iterator[None]:
        """Write down what is heard, also if the process ends suddenly."""
        self._own = str(folder)
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND)
        try:
            yield
        finally:
            self._log = -1

    def open(self, path: Path, columns: Columns = None) -> Outcome:
        """Load a file, build its frames and decode some screenshots."""
        self._seen.clear()
        before, start = _memory_in_use(), perf_counter()
        kind, message = self._open(path, columns)
        return Outcome(
            kind="fault" if self._seen else kind,
            message=f"audit: {self._seen[:3]}" if self._seen else message[:600],
            seconds=perf_counter() - start,
            extra_bytes=max(self._child.num_bytes - before, 0),
        )

    def _open(self, path: Path, columns: Columns) -> tuple[str, str]:
        signal.alarm(3 * SECONDS)
        try:
            batch = load(
                path,
                columns=columns,
                untrusted=True,
                memory_limit=MEMORY,
                time_limit=SECONDS,
            )
            _use(batch)
        except LoadError as error:
            return self._kind(str(error)), str(error)
        except (Exception, Hang) as error:  # noqa: BLE001 any of them is a fault
            return "fault", f"{type(error).__name__}: {error}"
        finally:
            signal.alarm(0)
        return "batch", ""

    def _kind(self, message: str) -> str:
        if self._child.code == ESCAPED or "unexpected error" in message:
            return "fault"
        if re.search(
            "found (one that (needs more|takes longer)|a larger one)", message
        ):
            return "limit"
        return "crash" if "ended the process" in message else "refused"


def _hang(*_: object) -> None:
    msg = f"still at it after {3 * SECONDS} s"
    raise Hang(msg)


def _use(batch: Batch) -> None:
    """Do what a view does first; a batch that is right lets it."""
    token_frame(batch)
    round_frame(batch)
    for shot in [shot for row in batch.images or () for shot in row][:_SHOTS]:
        with suppress(LoadError):
            shot.image()


def _memory_in_use() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

"""Limits of the process that reads a file from somebody unknown."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass
from math import ceil
from numbers import Real
from pathlib import Path

from rounddiag.errors import LoadError

_GB = 10**9
_MOST = 1_000_000  # GB or seconds: a number that every system can represent
_SHARE = 4  # a batch may take one of so many parts of the memory


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of the process that reads a file.

    Attributes
    ----------
    memory : float
        Address space in GB, in addition to that of the libraries.
    time : float
        Seconds, of wall-clock and of processor time each.

    Raises
    ------
    LoadError
        If one is not a number above 0 and up to a million.
    """

    memory: float
    time: float

    def __post_init__(self) -> None:
        for name in ("memory", "time"):
            value = getattr(self, name)
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not (is_number and 0 < value <= _MOST):
                raise LoadError.build(
                    key=f"{name}_limit",
                    expected=f"a number above 0 and up to {_MOST:,}",
                    found=f"{value!r:.40}",
                    advice="Pass GB or seconds; the defaults are 4 and 60.",
                )
            object.__setattr__(self, name, float(value))

    @property
    def num_bytes(self) -> int:
        """The memory in bytes."""
        return int(self.memory * _GB)

    @property
    def batch_bytes(self) -> int:
        """What a batch may take, in memory and as a file."""
        return self.num_bytes // _SHARE


def set_limits(limits: Limits) -> None:
    """Limit memory, file sizes and time of this process, beyond what it has used.

    Signals that the parent ignored or blocked work again, those of the limits among
    them. Limits that the system has set already stay where they are lower.
    """
    import resource

    _restore_signals()
    used = resource.getrusage(resource.RUSAGE_SELF)
    with contextlib.suppress(OSError, ValueError):  # macOS has no such limit
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + limits.num_bytes)
    # The signal of the lower one says that it was the time; the upper one ends a
    # process that ignores it.
    cpu = ceil(used.ru_utime + used.ru_stime + limits.time)
    _lower(resource.RLIMIT_CPU, cpu, more=1)
    _lower(resource.RLIMIT_FSIZE, limits.batch_bytes)
    _lower(resource.RLIMIT_CORE, 0)
    signal.setitimer(signal.ITIMER_REAL, limits.time)  # its signal ends the process


def _restore_signals() -> None:
    for number in (signal.SIGALRM, signal.SIGXCPU, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _lower(kind: int, limit: int, *, more: int = 0) -> None:
    """Set a soft limit, and a hard one that is higher by `more`."""
    import resource

    hard = limit + more
    _, known = resource.getrlimit(kind)
    if known != resource.RLIM_INFINITY:
        hard = min(hard, known)
    resource.setrlimit(kind, (max(hard - more, 0), hard))

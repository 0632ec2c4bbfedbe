"""A background thread for writing files, which never raises into the trainer."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rounddiag.errors import RounddiagError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Job = Callable[[], None]


logger = logging.getLogger("rounddiag.capture")

_MAX_PENDING = 2  # each pending job holds the columns of a whole step
CLOSE_TIMEOUT = 30.0  # seconds


class Writer:
    """Runs jobs one after the other in a daemon thread of this process.

    The thread starts with the first job. A forked child starts a thread of its own with
    its first job; the jobs that were pending at the fork stay with the parent.

    Attributes
    ----------
    errors : int
        Number of errors so far, of jobs and inside `guard`.
    """

    def __init__(self) -> None:
        self.errors = 0
        self._skipped: set[str] = set()
        self._logged: set[type[Exception] | str] = set()
        self._process: int | None = None
        self._queue = _JobQueue()
        self._thread = threading.Thread()

    @property
    def dropped(self) -> int:
        """Number of names whose last job was skipped because the queue was full."""
        return len(self._skipped)

    def put(self, name: str, job: Job) -> None:
        """Queue a job, in the place of a pending job of the same name.

        Parameters
        ----------
        name : str
            Names the job in log messages.
        job : callable
        """
        if self._process != os.getpid():
            self._start()
        if self._queue.put(name, job):
            self._skipped.discard(name)
        else:
            self._skipped.add(name)
            self._warn_once(
                "full",
                f"{name} was skipped: the write queue is full ({_MAX_PENDING} pending);"
                " further warnings are suppressed",
            )

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Count errors, and log the first of each type, instead of raising them."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 a diagnosis must not end a training
            self.errors += 1
            is_ours = isinstance(error, RounddiagError)
            text = str(error) if is_ours else f"{type(error).__name__}: {error}"
            # Log the text alone: a traceback keeps the trainer's tensors alive.
            self._warn_once(
                type(error),
                f"{name} was not saved: {text}"
                " (further warnings of this type are suppressed)",
            )

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Finish the pending jobs, within `timeout` seconds, and end the thread."""
        if self._process != os.getpid():
            return
        self._process = None
        atexit.unregister(self.close)
        self._queue.close()
        self._thread.join(timeout)
        if self._thread.is_alive():
            logger.warning("gave up on the pending steps after %g s", timeout)

    def _start(self) -> None:
        self._process = os.getpid()
        self._queue = _JobQueue()
        self._thread = threading.Thread(
            target=self._run, args=(self._queue,), name="rounddiag", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def _run(self, queue: _JobQueue) -> None:
        while (item := queue.take()) is not None:
            name, job = item
            with self.guard(name):
                job()
            del item, job  # free the data of this job before the next one arrives

    def _warn_once(self, kind: type[Exception] | str, message: str) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            logger.warning(message)


class _JobQueue:
    """The pending jobs of one thread, by name."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: dict[str, Job] = {}
        self._is_closed = False

    def put(self, name: str, job: Job) -> bool:
        """Add or replace a job; False where the queue is full."""
        with self._changed:
            if name not in self._pending and len(self._pending) == _MAX_PENDING:
                return False
            self._pending[name] = job
            self._changed.notify()
            return True

    def take(self) -> tuple[str, Job] | None:
        """Wait for a job; None once the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._is_closed)
            name = next(iter(self._pending), None)
            return None if name is None else (name, self._pending.pop(name))

    def close(self) -> None:
        """Accept no further jobs."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

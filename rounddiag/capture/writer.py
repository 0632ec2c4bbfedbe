"""A background thread for writing files, which never raises into the trainer."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType

from rounddiag.errors import RounddiagError

Job = Callable[[], None]


logger = logging.getLogger("rounddiag.capture")

_MAX_PENDING = 2  # each pending job holds the columns of a whole step
CLOSE_TIMEOUT = 30.0  # seconds
_LAST_TIMEOUT = 1.0  # seconds, for a job that was ended


class ProcessLock:
    """A lock that a forked child finds open: the thread that held it is not there.

    One thread may enter it several times, as a handler of signals does.
    """

    def __init__(self) -> None:
        self._by_process: dict[int, threading.RLock] = {}

    def __enter__(self) -> None:
        self._own().acquire()

    def __exit__(self, *_: object) -> None:
        self._own().release()

    def _own(self) -> threading.RLock:
        return self._by_process.setdefault(os.getpid(), threading.RLock())


class Writer:
    """Runs jobs one after the other in a daemon thread of this process.

    Log messages say that a job was not `done`, such as "saved". Of more than two jobs
    that wait, the last is refused; with `keeps_newest`, the first is dropped.

    The thread starts with the first job. A forked child starts a thread of its own with
    its first job; the jobs that were pending at the fork stay with the parent.

    Attributes
    ----------
    errors: Number of errors so far, of jobs and inside `guard`.
    first_error: The message of the first of them; "" without one.
    num_done: Number of jobs that ran without an error.
    """

    def __init__(self, done: str = "saved", *, keeps_newest: bool = False) -> None:
        self._done = done
        self._keeps_newest = keeps_newest
        self.errors = 0
        self.first_error = ""
        self.num_done = 0
        self._skipped: set[str] = set()
        self._logged: set[object] = set()
        self._process: int | None = None
        self._queue = _JobQueue()
        self._thread = threading.Thread()
        self._lock = ProcessLock()

    @property
    def dropped(self) -> int:
        """Number of names whose last job was skipped because the queue was full."""
        return len(self._skipped)

    def put(self, name: str, job: Job) -> Job | None:
        """Queue a job, in the place of a pending job of the same name.

        Returns the job that will not run for it.
        """
        with self._lock:
            self.start()
            self._skipped.discard(name)
            keeps_newest = self._keeps_newest
            lost_name, lost = self._queue.put(name, job, keeps_newest=keeps_newest)
            if lost is job or lost_name != name:
                self._skipped.add(lost_name)
                self._warn_once(
                    "full",
                    f"{lost_name} was not {self._done}: {_MAX_PENDING} other steps are"
                    " waiting; further warnings are suppressed",
                )
            return lost

    def drop_pending(self) -> list[Job]:
        """Return the pending jobs, none of which will run."""
        return self._queue.clear()

    def guard(
        self,
        *name: object,
        catches: type[BaseException] = Exception,
        done: str | None = None,
    ) -> AbstractContextManager[None]:
        """Count errors, and log the first of each type, instead of raising them."""
        return _Guard(self, name, catches, done or self._done)

    def log_error(
        self, name: Sequence[object], error: BaseException, done: str
    ) -> None:
        """Count an error, and log the first of each type."""
        text = _describe(error)
        with self._lock:
            self.errors += 1
            self.first_error = self.first_error or text
            # Log the text alone: a traceback keeps the trainer's tensors alive.
            self._warn_once(
                (type(error), done),
                f"{_join(name)} was not {done}: {text}"
                " (further warnings of this type are suppressed)",
            )

    def close(
        self,
        timeout: float = CLOSE_TIMEOUT,
        give_up: Callable[[], object] = lambda: None,
    ) -> bool:
        """Finish the pending jobs, within `timeout` seconds, and end the thread.

        `give_up` is called where they take longer, to end the job that runs. False
        where this process has no thread.
        """
        if self._process != os.getpid():
            return False
        with self._lock:
            self._process = None
            self._queue.close()
            thread = self._thread
        thread.join(timeout)
        if thread.is_alive():
            logger.warning("gave up on the pending steps after %.3g s", timeout)
            give_up()
            thread.join(_LAST_TIMEOUT)
        return True

    def start(self) -> None:
        """Start the thread, if this process has none."""
        with self._lock:
            if self._process == os.getpid():
                return
            queue = _JobQueue()
            thread = threading.Thread(
                target=self._run, args=(queue,), name="rounddiag", daemon=True
            )
            thread.start()  # raises where the system has no room for another thread
            self._process, self._queue, self._thread = os.getpid(), queue, thread

    def _run(self, queue: _JobQueue) -> None:
        while (item := queue.take()) is not None:
            name, job = item
            # Also of SystemExit, which would end this thread and drop later steps.
            with self.guard(name, catches=BaseException):
                job()
                self.num_done += 1
            del item, job  # free the data of this job before the next one arrives

    def _warn_once(self, kind: object, message: str) -> None:
        if kind not in self._logged:
            self._logged.add(kind)
            logger.warning(message)


@dataclass(frozen=True)
class _Guard(AbstractContextManager[None]):
    """Logs an error instead of raising it.

    Not a generator with `contextmanager`: since Python 3.12 that keeps the traceback in
    a reference cycle, and with it the trainer's tensors until the next collection.
    """

    writer: Writer
    name: Sequence[object]
    catches: type[BaseException]
    done: str

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, self.catches):
            return False
        self.writer.log_error(self.name, error, self.done)
        return True


def _join(name: Sequence[object]) -> str:
    try:
        return " ".join(map(str, name))
    except Exception:  # noqa: BLE001 a step can be an object of others, or a huge number
        return "a step whose name cannot be read"


def _describe(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 the text is made by code of others
        return f"{name}, whose message cannot be read"
    return text if isinstance(error, RounddiagError) else f"{name}: {text}"


class _JobQueue:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: dict[str, Job] = {}
        self._is_closed = False

    def put(self, name: str, job: Job, *, keeps_newest: bool) -> tuple[str, Job | None]:
        """Add or replace a job; return which job was replaced, dropped or refused."""
        with self._changed:
            lost = name, self._pending.get(name)
            if lost[1] is None and len(self._pending) == _MAX_PENDING:
                if not keeps_newest:
                    return name, job
                oldest = next(iter(self._pending))
                lost = oldest, self._pending.pop(oldest)
            self._pending[name] = job
            self._changed.notify()
            return lost

    def clear(self) -> list[Job]:
        """Remove the pending jobs, and return them."""
        with self._changed:
            jobs = [*self._pending.values()]
            self._pending.clear()
            return jobs

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

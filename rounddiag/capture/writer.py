"""A thread that writes, so that the trainer need not wait, nor ever hear of errors."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rounddiag.errors import RounddiagError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Job = Callable[[], None]

logger = logging.getLogger("rounddiag.capture")

_MAX_JOBS = 2  # that wait; each holds the columns of a whole step
PATIENCE = 30.0  # seconds that closing, or the end of the process, waits for them


class Writer:
    """Runs jobs one after the other in a daemon thread of this process.

    The thread starts with the first job. After a fork the child has none and starts its
    own with its first job; what was waiting is the parent's to write.

    Attributes
    ----------
    dropped : int
        Jobs that were not taken because too many waited.
    errors : int
        Errors so far, of jobs and of what was `guarded`.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.errors = 0
        self._told: set[type[Exception] | str] = set()
        self._process: int | None = None
        self._jobs: queue.Queue[tuple[str, Job] | None] = queue.Queue(_MAX_JOBS)
        self._thread = threading.Thread()

    def put(self, name: str, job: Job) -> None:
        """Run a job later; `name` says in messages what is lost if it fails."""
        if self._process != os.getpid():
            self._start()
        try:
            self._jobs.put_nowait((name, job))
        except queue.Full:
            self.dropped += 1
            self._tell("full", "%s is not saved: %d others wait", name, _MAX_JOBS)

    @contextmanager
    def guarded(self, name: str) -> Iterator[None]:
        """Count every error and log the first of its kind, instead of raising it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 a diagnosis must not end a training
            self.errors += 1
            is_ours = isinstance(error, RounddiagError)
            said = str(error) if is_ours else f"{type(error).__name__}: {error}"
            # The text alone is kept: a traceback holds on to the trainer's tensors.
            self._tell(type(error), "%s is not saved: %s", name, said)

    def close(self, patience: float = PATIENCE) -> None:
        """Finish the jobs that wait, within so many seconds, and end the thread."""
        if self._process != os.getpid():
            return
        self._process = None
        atexit.unregister(self.close)
        deadline = time.monotonic() + patience
        try:
            self._jobs.put(None, timeout=patience)
        except queue.Full:
            pass
        else:
            self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            logger.warning("stopped waiting for steps to be saved after %g s", patience)

    def _start(self) -> None:
        self._process = os.getpid()
        self._jobs = queue.Queue(_MAX_JOBS)
        self._thread = threading.Thread(
            target=self._run, args=(self._jobs,), name="rounddiag", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def _run(self, jobs: queue.Queue[tuple[str, Job] | None]) -> None:
        while (item := jobs.get()) is not None:
            name, job = item
            with self.guarded(name):
                job()
            del item, job  # what it holds is let go before the next one comes

    def _tell(self, kind: type[Exception] | str, message: str, *facts: object) -> None:
        if kind not in self._told:
            self._told.add(kind)
            logger.warning("%s (told once)", message % facts)

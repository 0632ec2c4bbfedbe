"""A thread that writes, so that the trainer need not wait, nor ever hear of errors."""

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

_MAX_JOBS = 2  # that wait; each holds the columns of a whole step
PATIENCE = 30.0  # seconds that closing, or the end of the process, waits for them


class Writer:
    """Runs jobs one after the other in a daemon thread of this process.

    The thread starts with the first job. After a fork the child has none and starts its
    own with its first job; what was waiting is the parent's to write.

    Attributes
    ----------
    errors : int
        Errors so far, of jobs and of what was `guarded`.
    """

    def __init__(self) -> None:
        self.errors = 0
        self._left_out: set[str] = set()
        self._told: set[type[Exception] | str] = set()
        self._process: int | None = None
        self._jobs = _Jobs()
        self._thread = threading.Thread()

    @property
    def dropped(self) -> int:
        """Number of names whose last job was not taken because too many waited."""
        return len(self._left_out)

    def put(self, name: str, job: Job) -> None:
        """Run a job later, instead of one of this name that waits.

        Parameters
        ----------
        name : str
            Says in messages what is lost if the job fails.
        job : callable
        """
        if self._process != os.getpid():
            self._start()
        if self._jobs.put(name, job):
            self._left_out.discard(name)
        else:
            self._left_out.add(name)
            self._tell("full", f"{name} is not saved: {_MAX_JOBS} others wait")

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
            self._tell(type(error), f"{name} is not saved: {said}")

    def close(self, patience: float = PATIENCE) -> None:
        """Finish the jobs that wait, within so many seconds, and end the thread."""
        if self._process != os.getpid():
            return
        self._process = None
        atexit.unregister(self.close)
        self._jobs.end()
        self._thread.join(patience)
        if self._thread.is_alive():
            logger.warning("stopped waiting for steps to be saved after %g s", patience)

    def _start(self) -> None:
        self._process = os.getpid()
        self._jobs = _Jobs()
        self._thread = threading.Thread(
            target=self._run, args=(self._jobs,), name="rounddiag", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def _run(self, jobs: _Jobs) -> None:
        while (item := jobs.take()) is not None:
            name, job = item
            with self.guarded(name):
                job()
            del item, job  # what it holds is let go before the next one comes

    def _tell(self, kind: type[Exception] | str, message: str) -> None:
        if kind not in self._told:
            self._told.add(kind)
            logger.warning("%s (told once)", message)


class _Jobs:
    """The jobs that wait, by name, for one thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[str, Job] = {}
        self._is_ended = False

    def put(self, name: str, job: Job) -> bool:
        """Let a job wait, or say that too many do."""
        with self._changed:
            if name not in self._waiting and len(self._waiting) == _MAX_JOBS:
                return False
            self._waiting[name] = job
            self._changed.notify()
            return True

    def take(self) -> tuple[str, Job] | None:
        """Wait for a job; None when there is none left and none will come."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_ended)
            name = next(iter(self._waiting), None)
            return None if name is None else (name, self._waiting.pop(name))

    def end(self) -> None:
        """Say that no more jobs come."""
        with self._changed:
            self._is_ended = True
            self._changed.notify()

"""VerdictWorker: asks for the verdict on recorded steps, in child processes.

A diagnosis holds the interpreter lock for up to a tenth of a second at a time, so a
thread of the trainer's process only waits for the child.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rounddiag.capture.options import Options
from rounddiag.capture.writer import CLOSE_TIMEOUT, ProcessLock, Writer, logger
from rounddiag.errors import BatchError
from rounddiag.wording import printable

_CODE = "from rounddiag.capture.verdict_child import answer_request; answer_request()"
_TIMEOUT = 900.0  # seconds
_MAX_OUTPUT = 500  # characters of a child that failed
# One thread, and no GPU: both are the trainer's.
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# Share of the machine's processor time between two judged steps, if `diagnose` is None.
_SHARE = 0.01
_FIRST_COST = 10.0  # seconds of a processor, until the first step has been judged


class VerdictWorker:
    """Judges step files one after the other, and says when the verdict changes.

    It never raises into the trainer: errors are logged and counted as by the `Writer`.
    At most two steps wait; of more, the first is then not judged.
    """

    def __init__(self, options: Options) -> None:
        self._verdict: str | None = None
        self._options = options
        self._writer = Writer(done="judged", keeps_newest=True)
        self._child: subprocess.Popen[str] | None = None
        self._newest: int | None = None  # step that was to be judged
        self._last: int | None = None  # step that was judged
        self._is_given_up = False
        self._severity = 0
        self._metrics: dict[str, float] = {}  # not taken yet
        self._lock = ProcessLock()  # of the metrics
        self._known: set[tuple[int, int]] = set()
        self._begun: float | None = None
        self._cost = _FIRST_COST

    @property
    def errors(self) -> int:
        """Number of errors so far, also of the callback."""
        return self._writer.errors

    def start(self) -> None:
        """Start the thread, if steps are judged."""
        if self._is_on():
            self._writer.start()

    def is_due(self, step: int, num_parts: int) -> bool:
        """Return whether to judge a step that was just written, once per new part."""
        if not self._is_on() or (step, num_parts) in self._known:
            return False
        self._known.add((step, num_parts))
        now = time.monotonic()
        if self._begun is None:
            self._begun = now
        elif self._options.diagnose is None:
            room = _SHARE * (now - self._begun) * (os.cpu_count() or 1)
            if room < self._cost:
                return False
            self._begun = now
            return True
        return self._options.diagnose is not None

    def add_metrics(self, step: int, metrics: dict[str, float]) -> None:
        """Add metrics of a step, in place of those of another one."""
        if self._is_on():
            now = {"rounddiag/step": float(step)}
            with self._lock:
                known = self._metrics if now.items() <= self._metrics.items() else {}
                self._metrics = {**known, **now, **metrics}

    def put(self, step: int, file: str, copy: str | None = None) -> None:
        """Judge a step file; or a temporary copy of all samples, which is removed."""
        self._newest = step
        new = _Step(self._judge, step, file, copy)
        lost = self._writer.put(f"step {step}", new)
        if isinstance(lost, _Step):
            lost.remove_copy()

    def take_metrics(self) -> dict[str, float]:
        """Return the metrics of the last judged step, once."""
        with self._lock:
            metrics, self._metrics = self._metrics, {}
        return metrics

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
        """Wait for the steps that are not judged yet; log which one was the last."""
        if not self._writer.close(timeout, self._give_up):
            return
        self._is_given_up = False
        if self._newest not in (None, self._last):
            last = "no step was judged"
            if self._last is not None:
                last = f"step {self._last} was judged last ({self._verdict})"
            logger.warning("%s; step %s was not judged", last, self._newest)
            self._newest = self._last

    def _give_up(self) -> None:
        self._is_given_up = True
        for job in self._writer.drop_pending():
            if isinstance(job, _Step):
                job.remove_copy()
        if self._child is not None:
            self._child.kill()

    def _is_on(self) -> bool:
        return self._options.diagnose is not False and self._options.rank in (None, 0)

    def _judge(self, job: _Step) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pickled = Path(folder) / "diagnosis"
            begin = time.monotonic()
            request = {
                "file": job.copy or job.file,
                "before": self._verdict,
                "diagnosis_file": str(pickled) if self._options.on_verdict else None,
            }
            try:
                answer = _run_child(request, self._started)
            except Exception:
                if self._is_given_up:
                    return
                if self._newest == job.step:  # the error is logged
                    self._newest = self._last
                raise
            finally:
                job.remove_copy()
            self._cost = answer["cost"]
            seconds = {"rounddiag/seconds": time.monotonic() - begin}
            self.add_metrics(job.step, {**answer["metrics"], **seconds})
            is_other = answer["severity"] != self._severity
            if is_other:
                self._tell(job.step, job.file, answer)
            self._verdict, self._severity = answer["verdict"], answer["severity"]
            self._last = job.step
            if is_other and self._options.on_verdict is not None:
                diagnosis = pickle.loads(pickled.read_bytes())  # noqa: S301 our child
                with self._writer.guard("on_verdict of step", job.step, done="run"):
                    self._options.on_verdict(diagnosis, job.file)

    def _started(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def _tell(self, step: int, file: str, answer: dict[str, Any]) -> None:
        text = printable(" ".join(answer["text"].split()))
        verdict, before = answer["verdict"], self._verdict or "healthy"
        logger.warning(
            "step %s: %s, was %s. %s (%s)", step, verdict, before, text, file
        )


@dataclass(frozen=True)
class _Step:
    judge: Callable[[_Step], None]
    step: int
    file: str
    copy: str | None

    def __call__(self) -> None:
        self.judge(self)

    def remove_copy(self) -> None:
        if self.copy is not None:
            Path(self.copy).unlink(missing_ok=True)


def _run_child(
    request: dict[str, Any], started: Callable[[subprocess.Popen[str]], None]
) -> dict[str, Any]:
    """Return the answer of `answer_request`; a BatchError where there is none."""
    search = [*filter(None, sys.path), str(Path(__file__).parents[2])]
    with subprocess.Popen(  # noqa: S603 our own code
        [sys.executable, "-c", _CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(search)},
        text=True,
    ) as child:
        started(child)
        try:
            text = json.dumps({**request, "parent": os.getpid()})
            output, errors = child.communicate(text, timeout=_TIMEOUT)
        finally:
            child.kill()
    answer: dict[str, Any] = json.loads(output or "{}")
    if "metrics" in answer:
        return answer
    end = errors.strip()[-_MAX_OUTPUT:]
    raise BatchError(answer.get("error") or f"exit code {child.returncode}: {end}")

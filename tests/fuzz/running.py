"""Runs workers, and replaces one that a case has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from select import select
from typing import Any

from tests.fuzz.guard import SECONDS

_PATIENCE = (
    3 * SECONDS + 50
)  # seconds until a worker counts as hung; starting takes some


def outcomes(
    run: int, wants_more: Callable[[], bool], first: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield what became of each case, from `first` on, while more is wanted."""
    number = first
    while wants_more():
        with _worker(number, run) as worker:
            for fact in _facts(worker, number, wants_more):
                yield fact
                number = fact["case"] + 1


def _worker(first: int, run: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.fuzz.worker", str(first), str(run)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def _facts(
    worker: subprocess.Popen[str], first: int, wants_more: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Ask a worker for one case after the other, until it ends or hangs."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    number = first
    while wants_more():
        print(file=worker.stdin, flush=True)
        ready, _, _ = select([worker.stdout], [], [], _PATIENCE)
        line = worker.stdout.readline() if ready else ""
        if not line:
            worker.kill()
            yield _ended(number, "hung" if not ready else "ended", worker.wait())
            return
        yield json.loads(line)
        number += 1
    worker.stdin.close()


def _ended(number: int, how: str, code: int) -> dict[str, Any]:
    return {
        "case": number,
        "seed": "?",
        "damage": "?",
        "kind": "fault",
        "message": f"the worker {how} (code {code})",
        "seconds": 0.0,
        "extra_bytes": 0,
    }

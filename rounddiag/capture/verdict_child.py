"""The child process of a `VerdictWorker`: the verdict on one file, and metrics."""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.core.columns import first_unequal
from rounddiag.core.divergence import beyond
from rounddiag.core.sums import diffs
from rounddiag.errors import RounddiagError
from rounddiag.loaders.parquet import load_parquet

if TYPE_CHECKING:
    from rounddiag.findings.verdict import Verdict

_NICE = 5


def answer_request() -> None:
    """Answer the request on standard input with one JSON object."""
    os.nice(_NICE)
    request = json.load(sys.stdin)
    parent = request.pop("parent")
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    with redirect_stdout(sys.stderr):
        try:
            answer = judge_file(**request)
        except RounddiagError as error:
            answer = {"error": str(error)}
    print(json.dumps(answer))  # noqa: T201 read by the parent


def _end_with(parent: int) -> None:
    """End this process within a second of the trainer's, also of one that is killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def judge_file(
    file: str, before: Verdict | None, diagnosis_file: str | None
) -> dict[str, Any]:
    """Judge a step file; write the Diagnosis, pickled, if its severity is another.

    `before` is the verdict on the step before, which holds as in a run.

    `cost` is the time of a processor that this process has used, in seconds.
    """
    from rounddiag.findings import diagnose
    from rounddiag.findings.verdict import hold, severity_of

    batch = load_parquet(Path(file))
    diagnosis = diagnose(batch)
    verdict = hold(before, diagnosis.verdict, diagnosis.at_limits(0.5))
    severity = severity_of(verdict)
    if diagnosis_file is not None and severity != severity_of(before or "healthy"):
        Path(diagnosis_file).write_bytes(pickle.dumps(diagnosis))
    metrics = _mismatch(batch)
    if verdict != "not_measurable":
        metrics["rounddiag/severity"] = float(severity)
    if diagnosis.onset is not None:
        metrics["rounddiag/onset_round"] = float(diagnosis.onset.round)
    return {
        "verdict": verdict,
        "severity": severity,
        "text": diagnosis.text,
        "metrics": metrics,
        "cost": time.process_time(),
    }


def _mismatch(batch: Batch) -> dict[str, float]:
    """Return the metrics of the tokens, by their names in a trainer's log."""
    rounds, diff = batch.rounds, diffs(batch)
    num_tokens = rounds.num_tokens.numpy()
    finite = np.isfinite(diff)
    size = np.abs(diff[finite]).astype(np.float64)
    if not len(size):
        return {}
    metrics = {
        "rounddiag/mean_abs_diff": float(size.mean()),
        "rounddiag/share_beyond_2x": float(beyond(size, 2.0).mean()),
        "rounddiag/share_equal": float((size == 0).mean()),
    }
    first = first_unequal(batch, diff)
    if not np.isnan(first).all():
        metrics["rounddiag/first_unequal"] = float(np.nanmin(first))
    index = np.repeat(rounds.round.numpy(), num_tokens)[finite]
    counts = np.bincount(index)
    means = np.bincount(index, size) / np.maximum(counts, 1)
    for number in np.flatnonzero(counts).tolist():
        name = f"per_round/round_{number}_abs_diff_mean"
        metrics[name] = float(means[number])
    return metrics

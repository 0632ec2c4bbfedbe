"""The trainer's place: what scores the episodes where the model alone does not.

A function of the user's `(ids, images, positions) -> log-probs`, or a command that
scores what `rounddiag.export_rescore` writes.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.rescoring import attach, export_rescore
from rounddiag.proof.engines.pictures import draw
from rounddiag.proof.scorer import Scorer
from rounddiag.proof.scores import check_log_probs
from rounddiag.proof.trajectory import Request, to_flat


class TrainerInputs(NamedTuple):
    """What a function is called with: image tokens are expanded.

    Pictures are Pillow's, as the processor gets them; positions have shape
    (1 or 3, length).
    """

    ids: list[int]
    images: list[Any]
    positions: torch.Tensor


def trainer_inputs(scorer: Scorer, sample: int) -> TrainerInputs:
    """Return what the trainer reads of a sample."""
    engine: Any = scorer.engine
    whole = scorer.samples[sample]
    request = Request.of_sample(whole)
    positions = engine.eyes.positions(request, scorer.samples)
    images = [draw(shot, "seen") for shot in whole.shots[: len(whole.spans)]]
    return TrainerInputs(whole.ids.tolist(), images, positions)


def join_inputs(first: TrainerInputs, second: TrainerInputs) -> TrainerInputs:
    """Put two samples in one row: positions begin again with the second."""
    return TrainerInputs(
        first.ids + second.ids,
        first.images + second.images,
        torch.cat([first.positions, second.positions], -1),
    )


def score_alone(function: Callable[..., Any], inputs: TrainerInputs) -> Array:
    """Return the function's log-prob of each id; of the first it is not read."""
    answer = function(*inputs)
    values = np.asarray(answer, dtype=np.float64)
    if values.shape != (len(inputs.ids),):
        raise BatchError.build(
            key="scorer",
            expected=f"{len(inputs.ids)} log-probs, one for each id",
            found=f"shape {values.shape}",
            advice="Return any number for the first id; it is not read.",
        )
    return values


def score_with_function(function: Callable[..., Any], scorer: Scorer) -> Batch:
    """Return the batch with the log-probs of a function as those of training."""
    name = getattr(function, "__name__", "the function")
    known = []
    for sample in range(scorer.batch.num_samples):
        whole = scorer.samples[sample]
        values = score_alone(function, trainer_inputs(scorer, sample))[whole.targets]
        known.append((whole, check_log_probs(values, name)))
    flat = to_flat(scorer.batch, known)
    return _with_old(scorer.batch, flat, name)


def score_with_command(command: str, batch: Batch) -> Batch:
    """Return the batch with the log-probs of a command as those of training.

    It gets the folder that `rounddiag.export_rescore` writes as its last argument, and
    writes `scores.jsonl` there, as `rounddiag.attach` reads it.
    """
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home) / "episodes"
        export_rescore(batch, folder)
        run_command(command, folder)
        scored = attach(batch, "trainer", folder / "scores.jsonl")
    return _with_old(batch, scored.scores["trainer"], command)


def run_command(command: str, folder: Path) -> None:
    """Run a command of the user's with a folder as its last argument."""
    words = [*shlex.split(command), str(folder)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603 the user's own
    except OSError as error:
        raise _command_error(command, f"{error.strerror}: {words[0]}") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-200:]
        raise _command_error(command, f"{done.returncode}: {said}")


def _command_error(command: str, result: str) -> LoadError:
    return LoadError.build(
        expected=f"the command {command!r} to end with 0",
        found=result,
        advice="It gets a folder as its last argument.",
    )


def _with_old(batch: Batch, flat: torch.Tensor, name: str) -> Batch:
    source = {"old_log_probs_source": f"the scorer {name}"}
    return replace(batch, old_log_probs=flat, meta={**batch.meta, **source})

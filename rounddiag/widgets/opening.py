"""What `explore` and `report` are given, as a batch or a run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from rounddiag.batch import Batch
from rounddiag.core.scores import ScoredAgain
from rounddiag.errors import FrameError
from rounddiag.runs import Run, run_in
from rounddiag.stats.inputs import open_measured

BatchLike: TypeAlias = Batch | str | os.PathLike[str]
Opened = TypeVar("Opened")


def open_folder(data: Opened) -> Opened | Run:
    """Return the run where the data is the path of a folder of one, else the data."""
    return (run_in(data) if isinstance(data, str | os.PathLike) else None) or data


def refuse_answer(answer: object) -> None:
    """Raise a FrameError for an answer about a run."""
    if answer is not None:
        raise FrameError.build(
            key="answer",
            expected="a batch, to show an answer about it",
            found="a run",
            advice="Pass `run.batch(step)`.",
        )


def scores_of(data: object) -> dict[str, str]:
    """Return the scores that are compared where the data says which."""
    return (
        dict(zip("ab", data.pair, strict=True)) if isinstance(data, ScoredAgain) else {}
    )


def open_batch(source: BatchLike | ScoredAgain) -> Batch:
    """Return the batch, the scored samples of a proof, or what a path has."""
    if isinstance(source, ScoredAgain):
        return source.batch
    if isinstance(source, Mapping | list | tuple):
        raise FrameError.build(
            key="data",
            expected="one batch or path",
            found=f"a {type(source).__name__} of {len(source)}",
            advice="`rounddiag.plot_compare([before, after])` compares two; each has an"
            " explorer or a report of its own.",
        )
    return open_measured(source).require_batch()

"""Folders of steps on the command line: the text of a run, and of an ingestion."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from rounddiag.errors import LoadError
from rounddiag.loaders.paths import is_url
from rounddiag.wording import pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.runs import Ingestion, Run

_MOST_FAILED = 5  # files in the text of a run


def open_steps(path: str, tokenizer: str | None = None) -> Run | None:
    """Open a folder, a glob or a URL as a run; None if it has the files of one step."""
    from rounddiag.runs import open_run

    if not (Path(path).is_dir() or is_url(path) or has_magic(path)):
        return None
    try:
        run = open_run(path, tokenizer=tokenizer)
    except LoadError:
        if is_url(path):
            raise
        return None  # `load` reports what is wrong with it
    return run if len(run) > 1 or is_url(path) else None


def describe_run(run: Run) -> str:
    """Describe the verdicts over a run, what changed, and the levels of its rounds.

    Parameters
    ----------
    run : Run

    Returns
    -------
    str
        Paragraphs: the verdicts and changes, counts, a table with one row per round,
        and the files that could not be read.
    """
    with silence_failed_steps():
        diagnosis = run.diagnose()
    steps = run.step_summary()
    counts = (
        f"{pluralize(len(run), 'step')}, from {run.steps[0]:,} to {run.steps[-1]:,}; "
        f"{pluralize(int(steps['num_samples'].sum()), 'sample')}, "
        f"{pluralize(int(steps['num_tokens'].sum()), 'generated token')}\n"
        "diff = old_log_prob - rollout_log_prob, in nat; medians of the steps' means of"
        " |diff|"
    )
    paragraphs = [str(diagnosis), counts, _levels(run), describe_failed_steps(run)]
    return "\n\n".join(filter(None, paragraphs))


@contextmanager
def silence_failed_steps() -> Iterator[None]:
    """Silence the warning about steps that cannot be read: the command prints them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def describe_failed_steps(run: Run) -> str:
    """Return a line for each of the first steps that cannot be read."""
    failed = [*run.failed.items()]
    lines = [
        f"step {step} cannot be read: {printable(error)}"
        for step, error in failed[:_MOST_FAILED]
    ]
    if more := len(failed) - len(lines):
        lines.append(f"nor can {pluralize(more, 'other step')}")
    return "\n".join(lines)


def _levels(run: Run) -> str:
    """Return one row per round: its level in the first and the last quarter."""
    summary = run.summary()
    if not len(summary):
        return "no step has a generated token"
    size = max(1, len(run) // 4)
    first, last = (
        summary[summary["step"].isin(steps)].groupby("round")["mean"].median()
        for steps in (run.steps[:size], run.steps[-size:])
    )
    known = summary.dropna(subset="mean")
    worst = known.loc[known.groupby("round")["mean"].idxmax()].set_index("round")
    table = worst[["step", "mean"]].rename(
        columns={"step": "worst step", "mean": "mean there"}
    )
    table.insert(0, "first quarter", first)
    table.insert(1, "last quarter", last)
    text: str = table.reset_index().to_string(
        index=False, float_format="{:.4g}".format, na_rep="-"
    )
    return text


def describe_ingestion(done: Ingestion) -> str:
    """Return what was converted, and a line per file that failed."""
    return "\n".join(map(printable, str(done).splitlines()))

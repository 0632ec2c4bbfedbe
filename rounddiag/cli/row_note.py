"""The first line of a command on rows that are steps which were not joined."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from shlex import quote

from rounddiag.batch import Batch
from rounddiag.cli.terminal import print_text
from rounddiag.core.groups import trajectory_columns
from rounddiag.errors import LoadError
from rounddiag.runs import Run
from rounddiag.wording import printable


def print_row_note(
    source: Batch | Run, sample_by: Sequence[str] | None, *, as_json: bool = False
) -> None:
    """Print that rows are steps that were not joined, with the option that joins them.

    Nothing for other rows. Of a run, the newest step is read. JSON stays alone on the
    standard output: the note is then on the standard error.
    """
    batch = source if isinstance(source, Batch) else _newest(source)
    if batch is None or batch.meta.get("rounds") != "unknown":
        return
    names = () if sample_by else trajectory_columns(batch)
    note = str(batch.meta.get("rows", ""))
    if names:
        columns = quote(",".join(names))
        note = f"rows are steps of trajectories: `--sample-by {columns}` joins them"
    if note and as_json:
        print(printable(note), file=sys.stderr)
    elif note:
        print_text(note)


def _newest(run: Run) -> Batch | None:
    with suppress(LoadError):  # the command reports it
        return run.batch(run.steps[-1])
    return None

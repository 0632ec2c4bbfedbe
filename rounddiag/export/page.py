"""`report`: one HTML page on a batch or a run, and writing it."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from rounddiag.batch.batch import require_batch
from rounddiag.export.explorer_page import explorer_page
from rounddiag.export.html import document
from rounddiag.export.replies import collect_replies
from rounddiag.export.run_sections import run_sections
from rounddiag.loaders.parquet.writer import write_atomically
from rounddiag.runs import Run

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from rounddiag.batch import Batch


def report(
    batch: Batch | Run,
    path: str | os.PathLike[str],
    *,
    worst: int = 8,
    samples: int | Sequence[int | str] = 4,
) -> None:
    """Write a report on a batch or a run: one HTML page that needs only a browser.

    That of a batch is the explorer of `rounddiag.explore`, with the same panes and
    keys: verdict and findings, all samples and rounds, and some samples token by token
    with their screenshots and actions. It opens at the evidence of the first finding.
    Controls that need Python, such as filters, are disabled. The page makes no network
    requests and follows the reader's light or dark theme. An existing file is replaced
    atomically. The report of a run has the verdicts over the run, the figure of
    `plot_run`, a comparison of both sides of the first break, and a table of steps.

    Parameters
    ----------
    batch : Batch or Run
    path : path-like
        Where to write. Missing folders are created.
    worst : int
        How many of the worst samples to show token by token, by a lower confidence
        bound of their mean |diff|. Samples with the evidence of a finding are always
        there.
    samples : int or sequence of int or str
        How many samples to add, drawn at random from the others; or which, by number or
        id.

    Raises
    ------
    BatchError
        If `batch` is not a Batch.
    FrameError
        If there is no such sample.

    Notes
    -----
    The page contains the text and screenshots of these samples; share it accordingly.
    Its size is 2 MB, of which plotly.js is nearly all, and 25 bytes for each token of
    these samples; up to 8 MB are added for screenshots, of which those of the first
    samples are 768 pixels wide, and the others thumbnails once 6 MB are reached.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rd.report(batch, f"{folder}/report.html", worst=1, samples=[0])
    ...     Path(folder, "report.html").read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    if isinstance(batch, Run):
        html = document(PurePath(batch.path).name or batch.path, run_sections(batch))
    else:
        require_batch(batch)
        diagnosis, replies = collect_replies(batch, worst=worst, samples=samples)
        html = explorer_page(_title(batch), diagnosis, replies)
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(file) as partial:
        # Damaged text can contain lone surrogates.
        partial.write_bytes(html.encode("utf-8", "backslashreplace"))


def _title(batch: Batch) -> str:
    source = batch.meta.get("source")
    name = PurePath(source).name if isinstance(source, str) else "A batch"
    return name if batch.step is None else f"{name}, step {batch.step}"

"""The report: what a batch shows, on one page."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from rounddiag.batch.given import need_batch
from rounddiag.checks import check
from rounddiag.core import round_frame
from rounddiag.export.document import Section, document
from rounddiag.export.embedding import embedded
from rounddiag.export.facts import checked, summary_table, told_sources
from rounddiag.export.samples import worst_samples
from rounddiag.export.screens import worst_screens
from rounddiag.figures import plot_heatmap, plot_rounds
from rounddiag.loaders.parquet.writing import whole_file
from rounddiag.stats import round_summary, worst_round

if TYPE_CHECKING:
    import os

    from rounddiag.batch import Batch


def report(batch: Batch, path: str | os.PathLike[str], *, worst: int = 10) -> None:
    """Write what a batch shows as one HTML page, which needs nothing but a browser.

    The page holds failed checks, sources, the summary and figures of all rounds, the
    worst samples token by token, and the screenshots of the worst round. It asks no
    network for anything, follows the reader's light or dark colours, and prints. A file
    that is there already is replaced only when the new one is whole.

    Parameters
    ----------
    batch : Batch
    path : path-like
        Where to write; its folder is made if it is not there.
    worst : int
        How many samples are shown token by token, those of the largest mean |diff|
        first; and how many screenshots.

    Raises
    ------
    BatchError
        If it is no Batch.

    Notes
    -----
    The page has the text of these samples, and their screenshots, in it: think of whom
    you mail it to. It is 5 to 11 MB large, 5 of them plotly.js. Figures of samples with
    more than 4,000 tokens are thinned, and of texts with more than 2,000 the worst
    rounds are shown; both say so.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rd.report(batch, f"{folder}/report.html", worst=1)
    ...     Path(folder, "report.html").read_text(encoding="utf-8")[:15]
    '<!doctype html>'
    """
    need_batch(batch)
    html = document(_title(batch), _sections(batch, worst))
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(file) as partial:
        # Broken text of a file may hold halves of characters.
        partial.write_bytes(html.encode("utf-8", "backslashreplace"))


def _title(batch: Batch) -> str:
    source = batch.meta.get("source")
    name = PurePath(source).name if isinstance(source, str) else "A batch"
    return name if batch.step is None else f"{name}, step {batch.step}"


def _sections(batch: Batch, num_worst: int) -> list[Section]:
    summary, rounds = round_summary(batch), round_frame(batch)
    parts = [
        Section(key="checks", title="Checks", body=checked(check(batch))),
        Section(key="sources", title="Sources", body=told_sources(batch, summary)),
        Section(
            key="rounds",
            title="Rounds",
            body=embedded(plot_rounds, batch) + summary_table(summary),
        ),
        Section(
            key="heatmap",
            title="Samples and rounds",
            body=embedded(plot_heatmap, batch),
        ),
        worst_samples(batch, num_worst),
    ]
    row = worst_round(summary)
    if row is not None and batch.images is not None:
        parts.append(worst_screens(batch, rounds, int(row["round"]), num_worst))
    return parts

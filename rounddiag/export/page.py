"""The report: what a batch shows, on one page."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from tqdm.auto import tqdm

from rounddiag.batch.batch import require_batch
from rounddiag.batch.html import describe_sources, table
from rounddiag.checks import Checks, check
from rounddiag.core import round_frame, sample_frame
from rounddiag.errors import RounddiagError
from rounddiag.export.html import Section, document, embedded
from rounddiag.figures import plot_heatmap, plot_rounds, plot_trajectory, token_text
from rounddiag.loaders.parquet.writer import write_atomically
from rounddiag.schema import SAMPLES, SUMMARY
from rounddiag.stats import round_summary, worst_round
from rounddiag.wording import pluralize, printable

if TYPE_CHECKING:
    import os

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.schema import Table
    from rounddiag.vision import Screenshot


_SUMMARY = (
    *("round", "num_samples", "num_tokens", "mean_abs_diff"),
    *("ci_low", "ci_high", "p99", "max"),
)


def checked(found: Checks) -> str:
    """Return the checks, those that failed first and open."""
    failed = Checks(found.failed)
    first = scrolling(failed._repr_html_(), "Failed checks") if failed else ""
    others = Checks((*found.passed, *found.not_testable))
    return (
        f"<p>{pluralize(len(failed), 'check')} failed.</p>{first}"
        f"<details><summary>{len(found.passed)} passed, {len(found.not_testable)} not "
        f"testable</summary>{scrolling(others._repr_html_(), 'Other checks')}</details>"
    )


def told_sources(batch: Batch, summary: pd.DataFrame) -> str:
    """Return counts, where the numbers come from, and what was left out of them."""
    source = batch.meta.get("source")
    facts = {
        **({} if source is None else {"file": source}),
        "samples": f"{batch.num_samples:,}",
        "rounds": f"{batch.num_rounds:,}",
        "generated tokens": f"{batch.num_tokens:,}",
        **describe_sources(batch.meta),
        "tokens left out, diff not finite": f"{summary['num_nonfinite'].sum():,}",
    }
    rows = [(printable(name), printable(fact)) for name, fact in facts.items()]
    return scrolling(table(rows), "Sources")


def summary_table(summary: pd.DataFrame) -> str:
    """Return one row a round, as `round_summary` has it."""
    note = (
        "The interval is of 95 %, of draws of whole samples, or of whole groups where "
        "there are groups; - where they are too few."
    )
    return frame_table(summary[[*_SUMMARY]], SUMMARY, "Summary per round", note)


def frame_table(frame: pd.DataFrame, of: Table, name: str, note: str = "") -> str:
    """Return a frame as a table under the labels of its schema; text is escaped."""
    shown = frame.rename(columns=lambda column: of[column].label)
    html = shown.to_html(
        index=False, border=0, na_rep="-", float_format="{:.4g}".format
    )
    html = html.replace("<th>", '<th scope="col">')
    below = f"<p>{escape(note)}</p>" if note else ""
    return scrolling(html, name) + below


def scrolling(html: str, name: str) -> str:
    """Let what is wider than the page scroll, with the keyboard too."""
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{name}">{html}</div>'
    )


_SHOWN = (
    *("sample", "sample_id", "group_id", "reward", "num_rounds", "num_tokens"),
    *("mean_abs_diff", "max_abs_diff"),
)
# Of each sample, so that the page can be mailed, and opens at once.
_MAX_TOKENS = 2_000


def worst_samples(batch: Batch, num_worst: int) -> Section:
    """Return the samples with the largest mean |diff|, their figures and texts."""
    samples = sample_frame(batch)
    known = samples[samples["mean_abs_diff"].notna()]
    worst = known.nlargest(num_worst, "mean_abs_diff")
    shown = worst[[name for name in _SHOWN if name in worst]]
    how = (
        f"<p>{len(worst):,} of {pluralize(len(samples), 'sample')}, chosen by the mean of "
        "|diff| over all generated tokens of the sample, largest first. A sample of "
        "few tokens is easily among them: look at the counts. "
        f"{_without(len(samples) - len(known))}</p>"
    )
    numbers = tqdm(worst["sample"], unit="sample", leave=False, delay=1)
    return Section(
        key="samples",
        title="Worst samples",
        body=how + (frame_table(shown, SAMPLES, "Worst samples") if len(worst) else ""),
        parts=tuple(_sample(batch, int(sample)) for sample in numbers),
    )


def _without(num: int) -> str:
    is_are = "has" if num == 1 else "have"
    return f"{pluralize(num, 'sample')} {is_are} no finite diff." if num else ""


def _sample(batch: Batch, sample: int) -> Section:
    return Section(
        key=f"sample-{sample}",
        title=f"Sample {sample}",
        body=embedded(plot_trajectory, batch, sample=sample)
        + token_text(batch, sample=sample, max_tokens=_MAX_TOKENS).html,
    )


def worst_screens(batch: Batch, rounds: pd.DataFrame, worst: int, num: int) -> Section:
    """Return what the samples that are worst in a round saw just before it."""
    there = rounds[rounds["round"] == worst].sort_values(
        "mean_abs_diff", ascending=False, kind="stable"
    )
    shots = [
        (int(sample), shot)
        for sample in there["sample"]
        for shot in (batch.images or ())[sample]
        if shot.round == worst
    ]
    chosen = shots[: max(num, 0)]
    how = (
        f"<p>{len(chosen):,} of {pluralize(len(shots), 'screenshot')} shown to the model "
        f"just before round {worst}, the round with the largest mean |diff|; samples "
        "with the largest mean |diff| in that round first.</p>"
    )
    pictures = "".join(_picture(sample, shot) for sample, shot in chosen)
    return Section(
        key="screenshots",
        title=f"Screenshots of round {worst}",
        body=f'{how}<div class="screens">{pictures}</div>',
    )


def _picture(sample: int, shot: Screenshot) -> str:
    try:
        width, height = shot.seen_size or shot.size
        data = b64encode(shot.small_jpeg()).decode()
    except RounddiagError as error:
        said = escape(" ".join(str(error).split()))
        return f"<p>Sample {sample}: its screenshot cannot be shown. {said}</p>"
    name = f"sample {sample}, {width} x {height} pixels"
    return (
        f'<figure><img src="data:image/jpeg;base64,{data}" '
        f'alt="What the model saw: {name}"><figcaption>{name}</figcaption></figure>'
    )


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
    require_batch(batch)
    html = document(_title(batch), _sections(batch, worst))
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(file) as partial:
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

"""`report`: the sections of the page, from the verdict to the worst samples."""

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
from rounddiag.export.html import (
    Section,
    document,
    embed_figure,
    scrollable,
    table_html,
)
from rounddiag.export.run_sections import run_sections
from rounddiag.figures import (
    plot_finding,
    plot_heatmap,
    plot_rounds,
    plot_trajectory,
    token_text,
)
from rounddiag.findings import diagnose
from rounddiag.loaders.parquet.writer import write_atomically
from rounddiag.runs import Run
from rounddiag.schema import SAMPLES, SUMMARY
from rounddiag.stats import round_summary, worst_round
from rounddiag.wording import pluralize, printable

if TYPE_CHECKING:
    import os

    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.findings import Diagnosis
    from rounddiag.schema import Table
    from rounddiag.vision import Screenshot


_SUMMARY_COLUMNS = (
    *("round", "num_samples", "num_tokens", "mean_abs_diff"),
    *("ci_low", "ci_high", "p99", "max"),
)
_SAMPLE_COLUMNS = (
    *("sample", "sample_id", "group_id", "reward", "num_rounds", "num_tokens"),
    *("mean_abs_diff", "max_abs_diff"),
)
_MAX_TOKENS = 2_000  # of each sample's text, so that the page stays small


def report(
    batch: Batch | Run, path: str | os.PathLike[str], *, worst: int = 10
) -> None:
    """Write a report on a batch or a run: one HTML page that needs only a browser.

    The page has, in this order: the verdict, the findings, a figure of the first one,
    failed checks, sources, all rounds, the heatmap, the worst samples token by token,
    and the screenshots of the onset, or of the worst round where there is none. It
    makes no network requests, follows the reader's light or dark theme, and can be
    printed. An existing file is replaced atomically. That of a run has the verdicts
    over the run, the figure of `plot_run`, a comparison of both sides of the first
    break, and a table of steps.

    Parameters
    ----------
    batch : Batch or Run
    path : path-like
        Where to write. Missing folders are created.
    worst : int
        Number of samples to show token by token, largest mean |diff| first, and largest
        number of screenshots.

    Raises
    ------
    BatchError
        If `batch` is not a Batch.

    Notes
    -----
    The page contains the text and screenshots of these samples; share it accordingly.
    Its size is 5 to 11 MB, 5 MB of which are plotly.js. Figures of more than 4,000
    tokens are thinned, and texts of more than 2,000 tokens are cut to the worst rounds;
    the page says so.

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
    if isinstance(batch, Run):
        html = document(PurePath(batch.path).name or batch.path, run_sections(batch))
    else:
        require_batch(batch)
        html = document(_title(batch), _sections(batch, worst))
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(file) as partial:
        # Damaged text can contain lone surrogates.
        partial.write_bytes(html.encode("utf-8", "backslashreplace"))


def _title(batch: Batch) -> str:
    source = batch.meta.get("source")
    name = PurePath(source).name if isinstance(source, str) else "A batch"
    return name if batch.step is None else f"{name}, step {batch.step}"


def _sections(batch: Batch, num_worst: int) -> list[Section]:
    summary = round_summary(batch)
    diagnosis = diagnose(batch)
    sections = [
        Section(
            key="diagnosis",
            title="Noise or a bug",
            body=_diagnosis_html(diagnosis),
        ),
        Section(key="checks", title="Checks", body=_checks_html(check(batch))),
        Section(key="sources", title="Sources", body=_sources_html(batch, summary)),
        Section(
            key="rounds",
            title="Rounds",
            body=embed_figure(plot_rounds, batch) + _summary_html(summary),
        ),
        Section(
            key="heatmap",
            title="Samples and rounds",
            body=embed_figure(plot_heatmap, batch),
        ),
        _samples_section(batch, num_worst),
    ]
    row = worst_round(summary)
    if row is not None and batch.images is not None:
        onset = diagnosis.onset
        reason = "the round with the largest mean |diff|"
        if onset is not None:
            reason = f"the round from which on |diff| is larger ({onset.interval})"
        number = int(row["round"]) if onset is None else onset.round
        sections.append(_screenshots_section(batch, number, reason, num_worst))
    return sections


def _diagnosis_html(diagnosis: Diagnosis) -> str:
    """Return the verdict in a sentence, the findings, and the figure of the first."""
    html = (
        f"<p><strong>{diagnosis.verdict}</strong>: "
        f"{escape(printable(diagnosis.text))}</p>"
    )
    if not len(diagnosis):
        return html
    findings = diagnosis.frame.assign(
        where=diagnosis.frame["where"].map(printable),
        next_step=diagnosis.frame["next_step"].map(printable),
        share=diagnosis.frame["share"].map("{:.0%}".format),
    )
    columns = ["cause", "confidence", "share", "where", "num_tokens", "next_step"]
    table_of_findings = findings[columns].rename(
        columns={
            "share": "share of the sum of |diff|",
            "num_tokens": "tokens",
            "next_step": "next step",
        }
    )
    return (
        html
        + table_html(table_of_findings, "Findings", "{:.2f}")
        + embed_figure(plot_finding, diagnosis[0])
    )


def _checks_html(checks: Checks) -> str:
    """Return the failed checks, and the others in a closed element."""
    failed = Checks(checks.failed)
    table_of_failed = scrollable(failed._repr_html_(), "Failed checks")
    others = Checks((*checks.passed, *checks.not_testable))
    return (
        f"<p>{pluralize(len(failed), 'check')} failed.</p>"
        f"{table_of_failed if failed else ''}"
        f"<details><summary>{len(checks.passed)} passed, {len(checks.not_testable)} not"
        f" testable</summary>{scrollable(others._repr_html_(), 'Other checks')}"
        "</details>"
    )


def _sources_html(batch: Batch, summary: pd.DataFrame) -> str:
    """Return counts, the sources of the numbers, and what was left out."""
    source = batch.meta.get("source")
    num_nonfinite = int(summary["num_nonfinite"].sum())
    facts = {
        **({} if source is None else {"file": source}),
        "samples": f"{batch.num_samples:,}",
        "rounds": f"{batch.num_rounds:,}",
        "generated tokens": f"{batch.num_tokens:,}",
        **describe_sources(batch.meta),
        "tokens left out because diff is not finite": f"{num_nonfinite:,}",
    }
    rows = [(printable(name), printable(fact)) for name, fact in facts.items()]
    return scrollable(table(rows), "Sources")


def _summary_html(summary: pd.DataFrame) -> str:
    """Return one row per round of `round_summary`."""
    note = (
        "95 % bootstrap intervals, resampled by sample, or by group where there are "
        "groups; - where there are too few of them."
    )
    return _frame_html(summary[[*_SUMMARY_COLUMNS]], SUMMARY, "Summary per round", note)


def _frame_html(frame: pd.DataFrame, schema: Table, name: str, note: str = "") -> str:
    """Return a frame as a table, with the labels of its schema and escaped text."""
    labelled = frame.rename(columns=lambda column: schema[column].label)
    html = table_html(labelled, name, "{:.4g}")
    return html + (f"<p>{escape(note)}</p>" if note else "")


def _samples_section(batch: Batch, num_worst: int) -> Section:
    """Show the samples with the largest mean |diff|: figures and texts."""
    samples = sample_frame(batch)
    measured = samples[samples["mean_abs_diff"].notna()]
    worst = measured.nlargest(num_worst, "mean_abs_diff")
    columns = [name for name in _SAMPLE_COLUMNS if name in worst]
    text = (
        f"<p>{len(worst):,} of {pluralize(len(samples), 'sample')}, selected by the "
        "mean of |diff| over all generated tokens of the sample, largest first. "
        "Samples with few tokens can rank high by chance: check the counts. "
        f"{_count_unmeasured(len(samples) - len(measured))}</p>"
    )
    numbers = tqdm(worst["sample"], unit="sample", leave=False, delay=1)
    return Section(
        key="samples",
        title="Worst samples",
        body=text
        + (_frame_html(worst[columns], SAMPLES, "Worst samples") if len(worst) else ""),
        parts=tuple(_sample_section(batch, int(sample)) for sample in numbers),
    )


def _count_unmeasured(count: int) -> str:
    verb = "has" if count == 1 else "have"
    return f"{pluralize(count, 'sample')} {verb} no finite diff." if count else ""


def _sample_section(batch: Batch, sample: int) -> Section:
    return Section(
        key=f"sample-{sample}",
        title=f"Sample {sample}",
        body=embed_figure(plot_trajectory, batch, sample=sample)
        + token_text(batch, sample=sample, max_tokens=_MAX_TOKENS).html,
    )


def _screenshots_section(
    batch: Batch, number: int, reason: str, max_screenshots: int
) -> Section:
    """Show the screenshots just before a round, of its worst samples first."""
    rounds = round_frame(batch)
    cells = rounds[rounds["round"] == number].sort_values(
        "mean_abs_diff", ascending=False, kind="stable"
    )
    screenshots = [
        (int(sample), shot)
        for sample in cells["sample"]
        for shot in (batch.images or ())[sample]
        if shot.round == number
    ]
    first = screenshots[: max(max_screenshots, 0)]
    text = (
        f"<p>{len(first):,} of {pluralize(len(screenshots), 'screenshot')} shown to "
        f"the model just before round {number}, {reason}; "
        "samples with the largest mean |diff| in that round first.</p>"
    )
    images = "".join(_screenshot_html(sample, shot) for sample, shot in first)
    return Section(
        key="screenshots",
        title=f"Screenshots of round {number}",
        body=f'{text}<div class="screens">{images}</div>',
    )


def _screenshot_html(sample: int, shot: Screenshot) -> str:
    try:
        width, height = shot.seen_size or shot.size
        data = b64encode(shot.small_jpeg()).decode()
    except RounddiagError as error:
        reason = escape(" ".join(str(error).split()))
        return f"<p>Sample {sample}: its screenshot cannot be shown. {reason}</p>"
    name = f"sample {sample}, {width} x {height} pixels"
    return (
        f'<figure><img src="data:image/jpeg;base64,{data}" '
        f'alt="Screenshot: {name}"><figcaption>{name}</figcaption></figure>'
    )

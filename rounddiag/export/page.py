"""`report`: one HTML page on a batch, the explorer with its replies, or on a run."""

from __future__ import annotations

import json
import os
import zlib
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path, PurePath
from typing import Any

import pandas as pd
from plotly.offline import get_plotlyjs

from rounddiag.batch import Batch
from rounddiag.batch.html import prose
from rounddiag.core.scores import AskedModel, ScoredAgain
from rounddiag.export.html import (
    GENERATOR,
    Section,
    document,
    embed_figure,
    sections_page,
    table_html,
)
from rounddiag.export.replies import collect_replies
from rounddiag.figures.compare import plot_compare
from rounddiag.figures.finding import plot_finding
from rounddiag.figures.run import plot_run
from rounddiag.findings import Diagnosis, diagnose
from rounddiag.loaders.output import (
    FileKind,
    check_target,
    write_atomically,
)
from rounddiag.runs import Run
from rounddiag.runs.diagnosis import RunDiagnosis
from rounddiag.widgets.assets import script, style, theme_css
from rounddiag.widgets.opening import (
    BatchLike,
    open_batch,
    open_folder,
    refuse_answer,
    scores_of,
)
from rounddiag.widgets.serialization import serialize
from rounddiag.wording import printable


def report(
    data: BatchLike | Run | ScoredAgain,
    path: str | os.PathLike[str],
    *,
    worst: int = 8,
    samples: int | Sequence[int | str] = 4,
    a: str | None = None,
    b: str | None = None,
    notes: Sequence[Mapping[str, Any]] = (),
    answer: AskedModel | None = None,
) -> None:
    """Write a report on a batch or a run: one HTML page that needs only a browser.

    The report on a batch is the explorer of `rounddiag.explore`, with the same panes
    and keys: verdict and findings, all samples and rounds, and some samples token by
    token with their screenshots and actions. It opens at the evidence of the first
    finding. Controls that need Python,
    such as filters, are disabled. The report on a run has the verdicts over the run,
    the figure of `plot_run`, a comparison of both sides of the first break, and a table
    of steps. The page makes no network requests and follows the reader's light or dark
    theme. An existing report is replaced atomically; any other file is an error.

    Parameters
    ----------
    data : Batch or path-like, or Run or Proof
        What `rounddiag.explore` opens.
    path : path-like
        Where to write. Its folder is made, in one that exists.
    worst : int
        How many of the worst samples to show token by token, by a lower confidence
        bound of their mean |diff|. Samples with the evidence of a finding are always
        included.
    samples : int or sequence of int or str
        How many of the other samples to add, drawn at random; or which ones, by number
        or id.
    a, b : str
        The scores to compare, as in `explore`; a report on a run has the standard ones.
    notes : sequence of mapping
        Notes of an explorer, `explorer.state["notes"]`, whose samples are included.
    answer : Answer, optional
        As in `explore`; the samples that it is about are included.

    Notes
    -----
    The page contains the text and screenshots of these samples; share it accordingly.
    Its size is 2 MB, of which plotly.js is nearly all, and 25 bytes for each token of
    these samples; screenshots add 2 MB, 768 pixels wide, and then thumbnails.

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
    file = Path(path)
    check_target(file, _REPORT)
    data = open_folder(data)
    if isinstance(data, Run):
        refuse_answer(answer)
        name = PurePath(data.path).name or data.path
        html = sections_page(name, _run_sections(data))
    else:
        batch, scores = open_batch(data), {"a": a, "b": b}
        chosen = {name: score for name, score in scores.items() if score is not None}
        state = {**scores_of(data), **chosen, "notes": [*notes]}
        diagnosis, replies = collect_replies(
            batch, state, worst=worst, samples=samples, answer=answer
        )
        html = _explorer_page(_title(batch), diagnosis, replies)
    with write_atomically(file, _REPORT) as partial:
        # Damaged text can contain lone surrogates.
        partial.write_bytes(html.encode("utf-8", "backslashreplace"))


_REPORT = FileKind(
    "a report",
    lambda stream: GENERATOR in stream.read(1 << 12).decode("utf-8", "replace"),
)


def _title(batch: Batch) -> str:
    source = batch.meta.get("source")
    name = printable(PurePath(source).name) if isinstance(source, str) else "A batch"
    return name if batch.step is None else f"{name}, step {batch.step}"


_WITHOUT_SCRIPTS = "All else needs JavaScript: save the file, and open it in a browser."


def _explorer_page(
    title: str,
    diagnosis: Diagnosis,
    replies: Iterable[tuple[str, object]],
) -> str:
    """Return the page; without scripts it has the verdict and the findings alone."""
    stored = [(key, _pack(reply)) for key, reply in replies]
    elements = "\n".join(
        f'<script type="text/plain" data-reply="{key}">{text}</script>'
        for key, text in [*stored, ("plotly", _packed_plotly())]
    )
    body = f"""<main id="words">
<h1>{escape(title)}</h1>
{_words(diagnosis)}</main>
{elements}"""
    return document(
        title,
        body,
        style=theme_css() + style("report"),
        scripts=[script("report")],
        kind="module",
        others="blob:",
    )


# Of zlib. A report of 32 x 10,000 tokens is 6 % larger than at the default level, which
# takes three times as long.
_FAST = 2


@cache
def _packed_plotly() -> str:
    """Return plotly.js, whose compression takes half of the time of a small report."""
    return _pack({"code": get_plotlyjs().encode()}, zlib.Z_DEFAULT_COMPRESSION)


def _pack(reply: object, level: int = _FAST) -> str:
    """Compress a reply as `storedReply` in the page reads it.

    Four bytes, the size of the JSON that follows; then its buffers.
    """
    plain, buffers = serialize(reply)
    sizes = [len(buffer) for buffer in buffers]
    content = {"plain": plain, "sizes": sizes}
    # Columns of a file can hold dates, which a notebook's messages write as text too.
    head = json.dumps(content, separators=(",", ":"), default=str).encode()
    data = b"".join([len(head).to_bytes(4, "little"), head, *buffers])
    return b64encode(zlib.compress(data, level)).decode()


def _words(diagnosis: Diagnosis) -> str:
    lines = [
        f"{finding.kind}{cause and f', cause {cause}'}: {finding.location}"
        for finding, cause in zip(diagnosis, diagnosis.causes, strict=True)
    ]
    items = "".join(f"<li>{escape(printable(line))}</li>" for line in lines)
    text = "<br>\n".join(map(prose, diagnosis.text.splitlines()))
    verdict = f"<strong>{diagnosis.verdict}</strong>: {text}"
    return f"<p>{verdict}</p>\n<ol>{items}</ol>\n<p>{_WITHOUT_SCRIPTS}</p>\n"


def _run_sections(run: Run) -> list[Section]:
    diagnosis = run.diagnose()
    sections = [
        Section(key="diagnosis", title="Noise or a bug", body=_verdicts(diagnosis)),
        Section(key="run", title="Rounds over steps", body=embed_figure(plot_run, run)),
    ]
    if diagnosis.breaks:
        sections.append(_break_section(run, diagnosis))
    sections.append(
        Section(key="steps", title="Diagnosed steps", body=_steps(diagnosis))
    )
    if run.failed:
        sections.append(
            Section(
                key="failed", title="Steps that cannot be read", body=_failed_steps(run)
            )
        )
    return sections


def _verdicts(diagnosis: RunDiagnosis) -> str:
    lines = "".join(f"<li>{escape(printable(line))}</li>" for line in diagnosis.lines)
    return f"{_paragraphs(diagnosis.text)}<ul>{lines}</ul>"


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{prose(line)}</p>" for line in text.splitlines())


def _break_section(run: Run, diagnosis: RunDiagnosis) -> Section:
    first = diagnosis.breaks[0]
    batches = {f"step {step}": run.batch(step) for step in (first.previous, first.step)}
    body = f"<p>{escape(str(first))}</p>{embed_figure(plot_compare, batches)}"
    after = diagnose(batches[f"step {first.step}"])
    if len(after):
        body += _paragraphs(after.text)
        body += embed_figure(plot_finding, after[0])
    return Section(key="break", title=f"Before and at step {first.step:,}", body=body)


def _failed_steps(run: Run) -> str:
    frame = pd.DataFrame(
        {"step": [*run.failed], "error": [*map(printable, run.failed.values())]}
    )
    return table_html(frame, "Steps that cannot be read")


_LISTS = ("causes", "places", "updates")


def _steps(diagnosis: RunDiagnosis) -> str:
    frame = diagnosis.frame
    lists = {name: frame[name].map("; ".join) for name in frame if name in _LISTS}
    empty = [name for name, texts in lists.items() if not texts.any()]
    # What to do is said once, at the break.
    text = [printable(text.split("\n")[0]) for text in frame["text"]]
    frame = frame.assign(**lists, text=text).drop(columns=empty)
    names = {"mean_abs_diff": "mean |diff| [nat]", "text": "diagnosis"}
    return table_html(frame.rename(columns=names), "Diagnosed steps")

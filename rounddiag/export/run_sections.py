"""The sections of the report on a run: verdicts, the figure, a break, the steps."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import pandas as pd

from rounddiag.export.html import Section, embed_figure, table_html
from rounddiag.figures import plot_compare, plot_finding, plot_run
from rounddiag.findings import diagnose
from rounddiag.wording import printable

if TYPE_CHECKING:
    from rounddiag.runs import Run
    from rounddiag.runs.diagnosis import RunDiagnosis


def run_sections(run: Run) -> list[Section]:
    """Return the sections of the report on a run."""
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
            Section(key="failed", title="Steps that cannot be read", body=_failed(run))
        )
    return sections


def _verdicts(diagnosis: RunDiagnosis) -> str:
    lines = "".join(f"<li>{escape(printable(line))}</li>" for line in diagnosis.lines)
    return f"<p>{escape(diagnosis.text)}</p><ul>{lines}</ul>"


def _break_section(run: Run, diagnosis: RunDiagnosis) -> Section:
    """Compare both sides of the first break, with the first finding after it."""
    first = diagnosis.breaks[0]
    batches = {f"step {step}": run.batch(step) for step in (first.previous, first.step)}
    body = f"<p>{escape(str(first))}</p>{embed_figure(plot_compare, batches)}"
    after = diagnose(batches[f"step {first.step}"])
    if len(after):
        body += f"<p>{escape(printable(after.text))}</p>"
        body += embed_figure(plot_finding, after[0])
    return Section(key="break", title=f"Before and at step {first.step:,}", body=body)


def _failed(run: Run) -> str:
    frame = pd.DataFrame(
        {"step": [*run.failed], "error": [*map(printable, run.failed.values())]}
    )
    return table_html(frame, "Steps that cannot be read", "{:.4g}")


def _steps(diagnosis: RunDiagnosis) -> str:
    frame = diagnosis.frame.assign(
        causes=diagnosis.frame["causes"].map(", ".join),
        text=diagnosis.frame["text"].map(printable),
    )
    names = {"mean_abs_diff": "mean |diff| [nat]", "text": "diagnosis"}
    return table_html(frame.rename(columns=names), "Diagnosed steps", "{:.4g}")

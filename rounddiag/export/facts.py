"""Checks, sources and the summary of rounds, as tables."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rounddiag.batch.html import sources, table
from rounddiag.checks import Checks
from rounddiag.checks.words import count, printable
from rounddiag.schema import SUMMARY

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.batch import Batch
    from rounddiag.schema import Table

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
        f"<p>{count(len(failed), 'check')} failed.</p>{first}"
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
        **sources(batch.meta),
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

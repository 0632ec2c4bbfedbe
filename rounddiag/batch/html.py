"""The small tables that a notebook shows of a batch and of its checks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rounddiag.batch.container import Batch


def as_html(batch: Batch) -> str:
    """Return failed checks, counts and sources as a plain table."""
    failed = [("\N{BALLOT X} failed check", what) for what in failed_checks(batch.meta)]
    facts = {
        "samples": batch.num_samples,
        "rounds": batch.num_rounds,
        "generated tokens": batch.num_tokens,
        "step": batch.step,
        **{name: value for name, value in batch.meta.items() if name != "checks"},
    }
    known = [(name, value) for name, value in facts.items() if value is not None]
    return table([*failed, *known])


def failed_checks(meta: Mapping[str, Any]) -> list[str]:
    """Return one line for each check that failed when the batch was loaded."""
    found = meta.get("checks", [])
    return [
        f"{one['name']}: {one['detail']}" for one in found if one["status"] == "failed"
    ]


def table(rows: Iterable[tuple[object, ...]]) -> str:
    """Return rows as a table, the first cell a heading; what a file says is escaped."""
    style = "text-align: left; vertical-align: top; white-space: normal"
    lines = []
    for name, *values in rows:
        cells = "".join(f'<td style="{style}">{escape(str(v))}</td>' for v in values)
        lines.append(f'<tr><th style="{style}">{escape(str(name))}</th>{cells}</tr>')
    return f"<table>{''.join(lines)}</table>"

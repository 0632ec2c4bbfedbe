"""The small table that a notebook shows of a batch."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rounddiag.batch.container import Batch


def as_html(batch: Batch) -> str:
    """Return counts and sources as a plain table; what a file says is escaped."""
    facts = {
        "samples": batch.num_samples,
        "rounds": batch.num_rounds,
        "generated tokens": batch.num_tokens,
        "step": batch.step,
        **batch.meta,
    }
    rows = "".join(
        f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<table>{rows}</table>"

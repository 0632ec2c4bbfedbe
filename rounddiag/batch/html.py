"""The tables that a notebook shows for a batch and for its checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from rounddiag.wording import printable

if TYPE_CHECKING:
    from rounddiag.batch.batch import Batch


# JupyterLab aligns cells to the right and to the middle of their row.
_STYLE = "text-align: left; vertical-align: top; white-space:"
_CODE = re.compile("`([^`]+)`")
# Entries of `meta` that `describe_sources` lists first, or that are shown elsewhere.
_HANDLED_ENTRIES = {
    *("source", "checks", "mask_source", "old_log_probs_source", "not_measurable"),
    "facts",
}
# One line for each failed check of a batch, once somebody has checked it.
known_failures: WeakKeyDictionary[Batch, tuple[str, ...]] = WeakKeyDictionary()


def as_html(batch: Batch) -> str:
    """Return failed checks, counts and sources as a plain table."""
    failed = [
        ("\N{BALLOT X} failed check", failure)
        for failure in known_failures.get(batch, ())
    ]
    facts = {
        "samples": batch.num_samples,
        "rounds": batch.num_rounds,
        f"generated {batch.token_noun}s": batch.num_tokens,
        "step": batch.step,
        **{name: value for name, value in batch.meta.items() if name != "checks"},
    }
    rows = (
        (str(name).replace("_", " "), format_meta_value(fact))
        for name, fact in facts.items()
    )
    return table([*failed, *((name, text) for name, text in rows if text)])


def table(rows: Iterable[tuple[str, ...]]) -> str:
    """Return rows as a table with escaped text; the first cell is a heading.

    JupyterLab typesets `$...$` except under the class `mathjax_ignore`: that would hide
    text between two amounts, and make links of text from a file.
    """
    return f'<table class="mathjax_ignore">{"".join(map(_row, rows))}</table>'


def _row(texts: tuple[str, ...]) -> str:
    name, *others, last = map(prose, texts)
    cells = [
        f'<th style="{_STYLE} nowrap">{name}</th>',
        *(f'<td style="{_STYLE} normal">{text}</td>' for text in others),
        f'<td style="{_STYLE} normal; overflow-wrap: anywhere">{last}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


def prose(text: str) -> str:
    """Return a text as HTML, with what stands in backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(printable(text)))


def describe_sources(meta: Mapping[str, Any]) -> dict[str, str]:
    """Describe where the numbers come from, and what was left out."""
    main = {
        "mask": meta.get("mask_source"),
        "old log-probs": meta.get("old_log_probs_source"),
        "sampling": format_meta_value(meta.get("sampling") or {}),
    }
    facts = meta.get("facts")
    known = {name: str(fact or "not recorded") for name, fact in main.items()}
    others = {
        name.replace("num_", "number of ").replace("_", " "): format_meta_value(fact)
        for name, fact in meta.items()
        if name not in _HANDLED_ENTRIES and isinstance(fact, str | int | list)
    }
    run = {"facts of the run": format_meta_value(facts)} if facts else {}
    return {**known, **run, **others}


def format_meta_value(fact: object) -> str:
    """Format a value of `meta` as text."""
    match fact:
        case None:
            return ""
        case Mapping():
            return ", ".join(
                f"{name} {_format_nested(value)}" for name, value in fact.items()
            )
        case list() | tuple():
            return "; ".join(map(str, fact))
    return str(fact)


def _format_nested(value: object) -> object:
    """Format a value inside a mapping; a list of mappings is reduced to its length."""
    match value:
        case [Mapping(), *_]:
            return f"[{len(value)} entries]"
        case Mapping():
            return f"({format_meta_value(value)})"
    return value

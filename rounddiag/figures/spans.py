"""Tokens as HTML: a span each, with its colour and its numbers, escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.checks.words import count
from rounddiag.figures.coloring import token_classes
from rounddiag.figures.labels import number
from rounddiag.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from rounddiag.schema import Pair


def chip(num_tokens: int) -> str:
    """Stand for a stretch of observation, if there is one."""
    if num_tokens <= 0:
        return ""
    size = count(num_tokens, "observation token")
    return f'<div><span class="o">{size}</span></div>'


def spans(part: pd.DataFrame, pair: Pair) -> Iterator[str]:
    """Give a span per token; tokens that share a character share a span.

    Parameters
    ----------
    part : DataFrame
    pair : Pair
        The scores, named safely.

    Yields
    ------
    str
    """
    texts = part["text"].tolist()
    columns = part[["diff", "rollout_log_prob", "old_log_prob"]]
    values = list(columns.itertuples(index=False, name=None))
    starts = [i for i, text in enumerate(texts) if text or i == 0]
    parts = [
        values[start:stop]
        for start, stop in zip(starts, [*starts[1:], len(texts)], strict=True)
    ]
    strongest = [max((diff for diff, _, _ in one), key=_strength) for one in parts]
    names = token_classes(np.array(strongest))
    for start, one, name in zip(starts, parts, names, strict=True):
        yield _span(texts[start], name, one, pair)


def _span(
    text: str, name: str, values: list[tuple[float, float, float]], pair: Pair
) -> str:
    shown = f' class="{name}"' if name else ""
    # Safe as text, but an attribute ends at a quote.
    a, b = (name.replace('"', "&quot;") for name in (pair.a, pair.b))
    title = "\n".join(
        f"diff {number(diff)}, {a} {number(old)}, {b} {number(rollout)}"
        for diff, rollout, old in values
    )
    return f'<span{shown} title="{title}">{_shown(text)}</span>'


def _strength(diff: float) -> float:
    return abs(diff) if np.isfinite(diff) else np.inf


def _shown(text: str) -> str:
    """Escape a token; signs for what is white or cannot be printed."""
    if not text.strip(" "):
        return f"<i>{'·' * len(text)}</i>"
    lines = text.split("\n")
    return "<i>↵</i>\n".join(escape(_printable(line)) for line in lines)


def _printable(line: str) -> str:
    return " ".join(visible(word) for word in line.split(" "))

"""The text of rounds as HTML, and what is said between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.checks.words import count
from rounddiag.figures.spans import chip, spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from rounddiag.schema import Pair


def rounds_html(
    tokens: pd.DataFrame, shown: pd.DataFrame, end: int | None, pair: Pair
) -> Iterator[str]:
    """Give the text of the rounds that are shown, and say what is between them.

    Observations are told up to the end of the sample; none of a single round, which
    has no `end`.
    """
    if tokens.empty:
        yield '<div class="k">The response mask is 0 everywhere.</div>'
    parts = dict(iter(shown.groupby("round")))
    left_out: list[pd.DataFrame] = []
    reached = 0
    for index, whole in tokens.groupby("round"):
        start = int(whole["position"].iloc[0])
        if index in parts:
            yield _left_out(left_out)
            left_out = []
            yield chip(start - reached) if end is not None else ""
            yield _round(index, len(whole), parts[index], pair)
        else:
            left_out.append(whole)
        reached = start + len(whole)
    yield _left_out(left_out)
    yield chip(end - reached) if end is not None else ""


def _left_out(rounds: Sequence[pd.DataFrame]) -> str:
    if not rounds:
        return ""
    first, last = (int(rounds[place]["round"].iloc[0]) for place in (0, -1))
    names = f"round {first}" if first == last else f"rounds {first} to {last}"
    size = count(sum(map(len, rounds)), "token")
    return f'<div class="k">Left out: {names}, {size}.</div>'


def _round(index: object, size: int, part: pd.DataFrame, pair: Pair) -> str:
    first = f", the first {len(part):,} of them" if len(part) < size else ""
    head = f'<div class="k"><b>round {index}</b>, {count(size, "token")}{first}</div>'
    return f'{head}<pre class="t">{"".join(spans(part, pair))}</pre>'

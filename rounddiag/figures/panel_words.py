"""What figures of panels say in words: over and in each, and under the title."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rounddiag.checks.words import count
from rounddiag.figures.labels import CROSS, number
from rounddiag.figures.panels import Panels
from rounddiag.figures.round_lines import check_few_lines, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

_FIRST_AND_LATER = ("first round", "later rounds")
# Characters of a name, which is bold, in half a figure of 400 pixels.
_NAME = 20


def panel_names(by: str | None, values: Iterable[object]) -> list[str]:
    """Name the panel of each value of a column, or those of rounds.

    Raises
    ------
    FrameError
        If there are more than 8 values.
    """
    if by is None:
        return [*_FIRST_AND_LATER]
    names = [shortened(f"{by} {value}", _NAME) for value in values]
    check_few_lines(by, len(names))
    return names


def panels_of(
    agreed: pd.DataFrame, names: Sequence[str], noun: str, *, signed: bool = False
) -> Panels:
    """Say over each panel how well both engines agree, and in it why it is empty.

    Parameters
    ----------
    agreed : DataFrame
        As `stats.agreement` gives it.
    names : sequence of str
        Of the panels.
    noun : str
        What was counted.
    signed : bool
        Give the signed mean instead of Pearson's r, where x and y are no pair.
    """
    rows = [row for _, row in agreed.iterrows()]
    return Panels(
        names=names,
        heads=[_head(row, noun, signed=signed) for row in rows],
        whys=[_why(row, name) for row, name in zip(rows, names, strict=True)],
    )


def _why(row: pd.Series[Any], name: str) -> str:
    return f"{CROSS} none finite" if row["num_nonfinite"] else f"no {name}"


def _head(row: pd.Series[Any], noun: str, *, signed: bool) -> list[str]:
    if not row["num"]:
        return [count(0, noun)]
    size = f"mean |difference| {number(row['mean_abs_diff'])}"
    if signed:
        last = f"mean difference {number(row['mean_diff'])}"
    elif math.isnan(row["pearson"]):
        last = "Pearson r undefined"
    else:
        last = f"Pearson r {row['pearson']:.4f}"
    return [count(row["num"], noun), size, last]


def cautions(agreed: pd.DataFrame, noun: str, num_picked: int) -> list[str]:
    """Say how much is not drawn, and which samples are there for being the worst."""
    lines = []
    num = int(agreed["num_nonfinite"].sum())
    if num:
        lines.append(f"left out: {count(num, noun)} without two finite values")
    if num_picked:
        size = count(num_picked, "sample")
        lines.append(f"{size} picked as the worst: means are too high")
    return lines


def why_empty(agreed: pd.DataFrame, noun: str) -> str:
    """Say why there is nothing to draw."""
    num = int(agreed["num_nonfinite"].sum())
    if num:
        return f"{CROSS} {count(num, noun)}, none with two finite values"
    return "no generated tokens: the response mask is 0"

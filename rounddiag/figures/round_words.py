"""What a figure per round says in words: under its title and on hover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures.canvas import colored
from rounddiag.figures.labels import CROSS, count, number
from rounddiag.stats import FEW_SAMPLES

if TYPE_CHECKING:
    import pandas as pd

    from rounddiag.figures.theme import Theme

HOVER = (
    "<b>round %{x}</b><br>mean %{customdata[0]}<br>%{customdata[1]}"
    "<br>median %{customdata[2]}, p99 %{customdata[3]}, max %{customdata[4]}"
    "<br>%{customdata[5]}, %{customdata[6]}%{customdata[7]}<extra></extra>"
)


def explanation(
    summary: pd.DataFrame, worst: pd.Series | None, look: Theme
) -> list[str]:
    """Name the worst round and the marks that need a word, a line each."""
    lines = [] if worst is None else _about(worst, look)
    if (summary["num_samples"] < FEW_SAMPLES).any():
        compared = worst is None or worst["num_samples"] < FEW_SAMPLES
        note = "" if compared else ", not compared"
        lines.append(f"○ fewer than {FEW_SAMPLES} samples{note}")
    if summary["mean_abs_diff"].isna().any():
        lines.append(f"{CROSS} no finite value in the round")
    left_out = int(summary["num_nonfinite"].sum())
    if left_out:
        lines.append(f"left out: {count(left_out, 'token')} whose diff is not finite")
    return lines


def _about(worst: pd.Series, look: Theme) -> list[str]:
    mean, samples, tokens = (
        worst[name] for name in ("mean_abs_diff", "num_samples", "num_tokens")
    )
    mark = colored("●", look.less)
    return [
        f"{mark} worst: round {int(worst['round'])}, mean {number(mean)} nat",
        _interval(worst["ci_low"], worst["ci_high"]),
        f"{count(samples, 'sample')} and {count(tokens, 'token')} in this round",
    ]


def _interval(low: float, high: float) -> str:
    if np.isnan(low) or np.isnan(high):
        return "too few independent samples for an interval"
    return f"95 % interval {number(low)} to {number(high)}"


def hover_data(summary: pd.DataFrame) -> list[list[str]]:
    """Return the strings that `HOVER` names, per round."""
    return [_hover_row(row) for _, row in summary.iterrows()]


def _hover_row(row: pd.Series) -> list[str]:
    left_out = int(row["num_nonfinite"])
    notes = [f"<br>{count(left_out, 'token')} not finite, left out"] if left_out else []
    if row["num_samples"] < FEW_SAMPLES:
        notes.append(f"<br>fewer than {FEW_SAMPLES} samples: do not lean on it")
    return [
        f"{number(row['mean_abs_diff'])} nat",
        _interval(row["ci_low"], row["ci_high"]),
        *(number(row[name]) for name in ("p50", "p99", "max")),
        count(row["num_samples"], "sample"),
        count(row["num_tokens"], "token"),
        "".join(notes),
    ]

"""What a figure per round says in words: on its axis, under its title, on hover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from plotly.colors import hex_to_rgb

from rounddiag.checks.words import count
from rounddiag.figures.canvas import colored
from rounddiag.figures.labels import CROSS, number, wrapped
from rounddiag.figures.means import few_caution, few_words, interval
from rounddiag.schema import METRICS
from rounddiag.stats import few_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from rounddiag.figures.round_lines import RoundLine
    from rounddiag.figures.theme import Theme
    from rounddiag.schema import Pair

# Characters of the axis title that the panel of the means has room for.
_AXIS = 38
# What `last_aligned` counts.
FROM_END = "round, counted from the end: -1 is each sample's last"
# From one quantile to the next, and how strong the bar's colour is.
RIBBONS = (("p50", "p90", 0.85), ("p90", "p99", 0.5), ("p99", "max", 0.25))


def estimand(metric: str, weight: str, pair: Pair, *, is_mean: bool) -> str:
    """Say what the y axis shows, in lines that fit it.

    Examples
    --------
    >>> from rounddiag.schema import Pair
    >>> estimand("abs_diff", "token", Pair(), is_mean=True)
    'mean |old - rollout| log-prob [nat],<br>token-weighted'
    >>> estimand("abs_diff", "token", Pair("ref", "old"), is_mean=False)
    '|ref - old| log-prob [nat], tokens'
    """
    label = pair.label(METRICS[metric])
    whole = f"{label}, {weight}-weighted"
    if not is_mean:
        whole = f"{label.removeprefix('mean ')}, tokens"
    return wrapped(whole, _AXIS)


def unit_of(metric: str) -> str:
    """Return what follows a number of this metric."""
    unit = METRICS[metric].unit
    return f" {unit}" if unit else ""


def about_worst(worst: pd.Series[Any] | None, unit: str, look: Theme) -> list[str]:
    """Name the worst round, its interval and its counts."""
    if worst is None:
        return []
    mark, mean = colored("●", look.less), number(worst["mean"])
    samples, tokens = worst["num_samples"], worst["num_tokens"]
    return [
        f"{mark} worst: round {int(worst['round'])}, mean {mean}{unit}",
        interval(worst["ci_low"], worst["ci_high"]),
        f"{count(samples, 'sample')} and {count(tokens, 'token')} in this round",
    ]


def about_survivors(look: Theme) -> str:
    """Explain the dashed line."""
    return f"{colored('╌╌', look.more)} at round 0, the samples that reach each round"


def about_quantiles(summary: pd.DataFrame, look: Theme) -> list[str]:
    """Explain the bars and the band of the smallest values."""
    parts = zip(RIBBONS, ("to 90 %", "to 99 %", "to the largest"), strict=True)
    bars = [f"{colored('▮', tint(look, one[2]))} {text}" for one, text in parts]
    line = f"tokens: {colored('━', look.more)} median  {'  '.join(bars)}"
    num = (summary["num_tokens"] - summary["num_nonfinite"]).to_numpy()
    zeros = float(np.dot(num, summary["share_zero"].fillna(0))) / max(num.sum(), 1)
    return [line, *([f"exactly 0: {_percent(zeros)} of tokens"] if zeros else [])]


def tint(look: Theme, strength: float) -> str:
    """Return the colour of a bar."""
    return f"rgba{(*hex_to_rgb(look.quiet), strength)}"


def notes(summary: pd.DataFrame, worst: pd.Series[Any] | None) -> list[str]:
    """Explain the marks that need a word, and say what was left out."""
    lines = []
    is_few = few_rows(summary)
    if is_few.any():
        most = summary["num_samples"].to_numpy()[is_few].max()
        note = ", not compared" if worst is not None and not is_few.all() else ""
        lines.append(f"○ {few_words(most)}{note}")
    if summary["mean"].isna().any():
        lines.append(f"{CROSS} no finite value in the round")
    left_out = int(summary["num_nonfinite"].sum())
    if left_out:
        lines.append(f"left out: {count(left_out, 'token')} whose diff is not finite")
    return lines


def hover_texts(line: RoundLine, unit: str) -> list[list[str]]:
    """Return the strings that `means.HOVER` names, per round of a line."""
    name = f", {line.name}" if line.name else ""
    return [
        [f"round {row['round']}{name}", "<br>".join(_about(row, unit))]
        for row in line.rows.assign(is_few=few_rows(line.rows)).to_dict("records")
    ]


def _about(row: Mapping[Any, Any], unit: str) -> Iterator[str]:
    middle, high, most = (number(row[name]) for name in ("p50", "p99", "max"))
    yield f"mean {number(row['mean'])}{unit}"
    yield interval(row["ci_low"], row["ci_high"])
    yield f"median {middle}, p99 {high}, max {most}"
    if row["share_zero"] > 0:
        yield f"exactly 0: {_percent(row['share_zero'])} of tokens"
    yield f"{count(row['num_samples'], 'sample')}, {count(row['num_tokens'], 'token')}"
    left_out = int(row["num_nonfinite"])
    if left_out:
        yield f"{count(left_out, 'token')} not finite, left out"
    if row["is_few"]:
        yield few_caution(row["num_samples"])


def _percent(share: float) -> str:
    return f"{number(100 * share)} %"

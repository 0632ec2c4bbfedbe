"""What all layers of a figure per round share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from plotly.colors import hex_to_rgb

from rounddiag.figures._parts.axes import FLOOR
from rounddiag.figures._parts.canvas import colored
from rounddiag.figures._parts.labels import CROSS, number, wrapped
from rounddiag.figures._parts.means import (
    HOVER,
    add_head,
    add_undefined,
    ends,
    few_caution,
    few_words,
    fills,
    interval,
    intervals,
)
from rounddiag.schema import METRICS, NUM_SAMPLES, NUM_TOKENS
from rounddiag.stats import few_rows
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures._parts.axes import RoundAxis
    from rounddiag.figures._parts.canvas import Theme
    from rounddiag.figures._parts.lines import RoundLine
    from rounddiag.schema import Pair


@dataclass(frozen=True, kw_only=True)
class RoundScene:
    """Lines, scales and colours of one figure.

    Attributes
    ----------
    lines : sequence of RoundLine
    num_rounds : int
        How many rounds the x axis has room for.
    worst : Series, optional
        The row of the round that is marked.
    axis : RoundAxis
    unit : str
    look : Theme
    """

    lines: Sequence[RoundLine]
    num_rounds: int
    worst: pd.Series[Any] | None
    axis: RoundAxis
    unit: str
    look: Theme

    def marked(self, line: RoundLine, usual: str) -> list[str]:
        """Return the colour of each round: the worst one's differs."""
        marked = None if self.worst is None else self.worst["round"]
        special = self.look.less
        return [special if index == marked else usual for index in line.rows["round"]]

    @property
    def bar(self) -> float:
        """Width of a bar, thin also where there are few."""
        return 0.6 * min(1, self.num_rounds / 15)


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
        f"{pluralize(samples, 'sample')} and {pluralize(tokens, 'token')} in this round",
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
        lines.append(
            f"left out: {pluralize(left_out, 'token')} whose diff is not finite"
        )
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
    yield f"{pluralize(row['num_samples'], 'sample')}, {pluralize(row['num_tokens'], 'token')}"
    left_out = int(row["num_nonfinite"])
    if left_out:
        yield f"{pluralize(left_out, 'token')} not finite, left out"
    if row["is_few"]:
        yield few_caution(row["num_samples"])


def _percent(share: float) -> str:
    return f"{number(100 * share)} %"


# Points of 60 rounds must not touch in a figure of 400 pixels.
_PLOT_WIDTH = 300
_COUNTED = "<b>round %{{x}}%{{meta}}</b><br>{}: %{{y:,}}<extra></extra>"


def add_guide(figure: go.Figure, scene: RoundScene) -> None:
    """Lead the eye from the worst round's mean down to its counts."""
    if scene.worst is not None:
        figure.add_shape(
            type="line",
            layer="below",
            x0=scene.worst["round"],
            x1=scene.worst["round"],
            y0=0,
            y1=1,
            yref="paper",
            line={"color": scene.look.less, "width": 1, "dash": "dot"},
        )


def add_ribbons(figure: go.Figure, scene: RoundScene) -> None:
    """Draw bars from quantile to quantile, and a stroke at the median."""
    (line,) = scene.lines
    for low, high, strength in RIBBONS:
        base = scene.axis.placed(line.rows[low])
        figure.add_bar(
            x=line.rows["round"],
            base=base,
            y=scene.axis.placed(line.rows[high]) - base,
            width=0.9 * min(1, scene.num_rounds / 6),
            marker={"color": tint(scene.look, strength), "line": {"width": 0}},
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=line.rows["round"],
        y=scene.axis.placed(line.rows["p50"]),
        mode="markers",
        marker={
            "symbol": "line-ew",
            "size": min(18, _PLOT_WIDTH / scene.num_rounds),
            "line": {"width": 3, "color": scene.look.more},
        },
        hoverinfo="skip",
    )


def add_floor(figure: go.Figure, scene: RoundScene) -> None:
    """Shade where values are too small for the axis, zeros among them."""
    figure.add_shape(
        type="rect",
        layer="below",
        xref="paper",
        x0=0,
        x1=1,
        y0=scene.axis.bottom,
        y1=FLOOR,
        fillcolor=scene.look.grid,
        line={"width": 0},
    )


def add_survivors(figure: go.Figure, left: pd.DataFrame, scene: RoundScene) -> None:
    """Draw the samples that reach each round, as they were at round 0."""
    figure.add_scatter(
        x=left["round"],
        y=scene.axis.placed(left["first_mean_abs_diff"]),
        mode="lines",
        line={"color": scene.look.more, "width": 1.5, "dash": "dash"},
        customdata=left["num_samples"],
        hovertemplate="%{customdata:,} samples reach round %{x}"
        "<br>at round 0 their mean is %{y:.3g} nat<extra></extra>",
    )


def add_means(
    figure: go.Figure, scene: RoundScene, *, has_means: bool, has_intervals: bool
) -> None:
    """Draw each line's means and intervals; either carries what is said on hover."""
    size = min(8, max(4, _PLOT_WIDTH / scene.num_rounds))
    for line in scene.lines:
        color = scene.marked(line, line.color)
        strokes = scene.look.muted if len(scene.lines) == 1 else line.color
        x = (line.rows["round"] + line.shift).to_numpy()
        hover = hover_texts(line, scene.unit)
        figure.add_scatter(
            x=x,
            y=scene.axis.placed(line.rows["mean"]),
            mode="lines+markers" if has_means else "markers",
            line={"color": strokes, "width": 1, "dash": line.dash},
            marker={
                "symbol": line.symbol,
                "size": size,
                "color": fills(line.rows, color, scene.look.paper),
                "line": {"color": color, "width": 1.5},
                "opacity": 1 if has_means else 0,
            },
            error_y=intervals(line.rows, strokes) if has_intervals else None,
            customdata=hover,
            hovertemplate=HOVER,
            cliponaxis=False,
        )
        without = np.flatnonzero(line.rows["mean"].isna())
        low = np.full(len(without), scene.axis.bottom)
        said = [hover[row] for row in without]
        add_undefined(figure, x[without], low, said, scene.look)


def add_counts(figure: go.Figure, scene: RoundScene) -> None:
    """Draw how many samples and tokens each round has, one line's on another's."""
    for axis, column in (("y2", NUM_SAMPLES), ("y3", NUM_TOKENS)):
        for line in scene.lines:
            color = scene.look.quiet if len(scene.lines) == 1 else line.color
            figure.add_bar(
                x=line.rows["round"],
                y=line.rows[column.name],
                yaxis=axis,
                width=scene.bar,
                marker={
                    "color": scene.marked(line, color),
                    "line": {"width": 0},
                },
                meta=f", {line.name}" if line.name else "",
                hovertemplate=_COUNTED.format(column.label),
            )
        add_head(figure, axis, column.label, scene.look)


def count_ends(summary: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the y axes of both counts, by the highest that all lines make."""
    names = [NUM_SAMPLES.name, NUM_TOKENS.name]
    highest = summary.groupby("round")[names].sum().max()
    return [ends(int(highest[name])) for name in names]

"""The layers of a figure per round: means, quantiles, survivors, counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.figures._parts.axes import LogAxis, tick_text
from rounddiag.figures._parts.canvas import NARROW_PLOT, Theme, colorize, with_opacity
from rounddiag.figures._parts.labels import format_number
from rounddiag.figures._parts.lines import RoundLine
from rounddiag.figures._parts.means import add_counts, add_means, explain_marks
from rounddiag.findings import Onset
from rounddiag.schema import Pair
from rounddiag.stats import few_rows
from rounddiag.wording import percent

# Smaller values, zeros among them, are drawn in a band of their own.
FLOOR = 1e-6
# The band's height and the room over the largest value, as factors; the least height.
_BAND, _ROOM, _MIN_FACTOR = 5.0, 1.5, 100.0
_MIDDLE = FLOOR / _BAND**0.5
# Room of a linear axis beyond an interval, as a share of it.
_BEYOND = 0.06
_DRAWN = ("mean", "p50", "p90", "p99", "max")


@dataclass(frozen=True, kw_only=True)
class RoundAxis:
    """The axis of means and quantiles.

    Attributes
    ----------
    log: None where the axis is linear.
    ends: What a linear axis reaches, at least.
    """

    log: LogAxis | None = None
    ends: tuple[float, ...] = ()

    @classmethod
    def around_means(cls, summary: pd.DataFrame) -> RoundAxis:
        """Leave room beyond all intervals: in a low figure plotly leaves none.

        Examples
        --------
        >>> import pandas as pd
        >>> row = {"mean": 1.0, "ci_low": 0.5, "ci_high": 2.0}
        >>> RoundAxis.around_means(pd.DataFrame([row])).ends
        (0.53, 2.12)
        """
        drawn = summary[["mean", "ci_low", "ci_high"]].to_numpy(dtype=np.float64)
        drawn = (1 + _BEYOND) * drawn[np.isfinite(drawn)]
        if not len(drawn):
            return cls()
        return cls(ends=(float(drawn.min()), float(drawn.max())))

    @classmethod
    def around_quantiles(cls, summary: pd.DataFrame) -> RoundAxis:
        """Fit all quantiles; values below the floor take a band.

        Examples
        --------
        >>> import pandas as pd
        >>> row = dict.fromkeys(_DRAWN, 1.0)
        >>> RoundAxis.around_quantiles(pd.DataFrame([row | {"p50": 0.0}])).log
        LogAxis(low=2e-07, high=1.5)
        """
        drawn = summary[[*_DRAWN]].to_numpy(dtype=np.float64)
        drawn = np.maximum(drawn[np.isfinite(drawn)], 0)
        high = max(drawn.max(initial=0), FLOOR * _MIN_FACTOR) * _ROOM
        low = drawn.min(initial=high)
        bottom = low / _ROOM if low > FLOOR else FLOOR / _BAND
        return cls(log=LogAxis(low=float(bottom), high=float(high)))

    @property
    def has_floor(self) -> bool:
        """Whether something is drawn in the band of the smallest values."""
        return self.log is not None and self.log.low < FLOOR

    @property
    def bottom(self) -> float:
        """Where crosses of undefined means are drawn."""
        return self.log.low if self.log else 0.0

    def place(self, values: pd.Series[float]) -> pd.Series[float]:
        """Move values below the floor into the middle of its band; NaN stays."""
        return values.mask(values < FLOOR, _MIDDLE) if self.has_floor else values

    def layout(self) -> dict[str, Any]:
        """Return the range and the ticks of a plotly axis."""
        if self.log is None:
            return {
                "rangemode": "tozero",
                "autorangeoptions": {"include": [*self.ends]},
            }
        layout = self.log.layout()
        if self.has_floor:
            names = dict(zip(layout["tickvals"], layout["ticktext"], strict=True))
            names.pop(FLOOR, None)  # it would touch the label of the band
            names[_MIDDLE] = f"≤ {tick_text(FLOOR)}"
            layout |= {"tickvals": [*names], "ticktext": [*names.values()]}
        return layout


@dataclass(frozen=True, kw_only=True)
class RoundScene:
    """Lines, scales and colours of one figure.

    Attributes
    ----------
    num_rounds: How many rounds the x axis has room for.
    onset: The round from which on the batch differs, which is marked.
    """

    lines: Sequence[RoundLine]
    num_rounds: int
    onset: Onset | None
    axis: RoundAxis
    metric: str
    pair: Pair
    theme: Theme

    @property
    def marked_round(self) -> int | None:
        """The onset; None without one, and where too few samples reach it."""
        if self.onset is None or not any(
            self._is_marked(line).any() for line in self.lines
        ):
            return None
        return self.onset.round

    def _is_marked(self, line: RoundLine) -> Array:
        index = None if self.onset is None else self.onset.round
        return (line.rows["round"] == index).to_numpy() & ~few_rows(line.rows)

    def colors(self, line: RoundLine, usual: str) -> list[str]:
        """Return the colour of each round: that of the marked one differs."""
        return np.where(self._is_marked(line), self.theme.mark, usual).tolist()

    @property
    def bar(self) -> float:
        """The width of a bar, also thin if there are few."""
        return 0.6 * min(1, self.num_rounds / 15)


# From one quantile to the next, and the strength of the bar's colour.
RIBBONS = (("p50", "p90", 0.85), ("p90", "p99", 0.5), ("p99", "max", 0.25))


def add_guide(figure: go.Figure, scene: RoundScene) -> None:
    """Draw a line from the marked round's mean down to its counts."""
    if scene.marked_round is not None:
        figure.add_shape(
            type="line",
            layer="below",
            x0=scene.marked_round,
            x1=scene.marked_round,
            y0=0,
            y1=1,
            yref="paper",
            line={"color": scene.theme.mark, "width": 1, "dash": "dot"},
        )


def add_floor(figure: go.Figure, scene: RoundScene) -> None:
    """Shade the band of values that are too small for the axis."""
    figure.add_shape(
        type="rect",
        layer="below",
        xref="paper",
        x0=0,
        x1=1,
        y0=scene.axis.bottom,
        y1=FLOOR,
        fillcolor=scene.theme.grid,
        line={"width": 0},
    )


def add_ribbons(figure: go.Figure, scene: RoundScene) -> None:
    """Draw bars from quantile to quantile, and a stroke at the median."""
    (line,) = scene.lines
    for low, high, strength in RIBBONS:
        base = scene.axis.place(line.rows[low])
        figure.add_bar(
            x=line.rows["round"],
            base=base,
            y=scene.axis.place(line.rows[high]) - base,
            width=0.9 * min(1, scene.num_rounds / 6),
            marker={"color": tint(scene.theme, strength), "line": {"width": 0}},
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=line.rows["round"],
        y=scene.axis.place(line.rows["p50"]),
        mode="markers",
        marker={
            "symbol": "line-ew",
            "size": min(18, NARROW_PLOT / scene.num_rounds),
            "line": {"width": 3, "color": scene.theme.lines[0]},
        },
        hoverinfo="skip",
    )


def tint(theme: Theme, strength: float) -> str:
    """Return the colour of a bar."""
    return with_opacity(theme.quiet, strength)


def add_survivors(figure: go.Figure, left: pd.DataFrame, scene: RoundScene) -> None:
    """Draw the samples that reach each round, measured at round 0."""
    figure.add_scatter(
        x=left["round"],
        y=scene.axis.place(left["first_mean_abs_diff"]),
        mode="lines",
        line={"color": scene.theme.lines[0], "width": 1.5, "dash": "dash"},
        customdata=left["num_samples"],
        hovertemplate="%{customdata:,} samples reach round %{x}"
        "<br>at round 0 their mean is %{y:.3g} nat<extra></extra>",
    )


def add_round_means(
    figure: go.Figure, scene: RoundScene, drawn: Mapping[str, bool]
) -> None:
    """Draw each line's means, intervals and counts; all of them have hover texts."""
    size = min(8, max(4, NARROW_PLOT / scene.num_rounds))
    for line in scene.lines:
        is_alone = len(scene.lines) == 1
        name = f", {line.name}" if line.name else ""
        hover = add_means(
            figure,
            line,
            scene.metric,
            scene.theme,
            pair=scene.pair,
            names=[f"round {index}{name}" for index in line.rows["round"]],
            places=(line.rows["round"] + line.shift).to_numpy(),
            values=scene.axis.place(line.rows["mean"]).to_numpy(),
            floor=scene.axis.bottom,
            has_intervals=drawn["ci"],
            stroke=scene.theme.muted if is_alone else line.color,
            colors=scene.colors(line, line.color),
            details=[_details(row) for _, row in line.rows.iterrows()],
            mode="lines+markers" if drawn["mean"] else "markers",
            marker={"size": size, "opacity": 1 if drawn["mean"] else 0},
        )
        if drawn["counts"]:
            usual = scene.theme.quiet if is_alone else line.color
            colors = scene.colors(line, usual)
            rounds = line.rows["round"]
            add_counts(figure, line, rounds, hover, width=scene.bar, color=colors)


def _details(row: pd.Series[Any]) -> list[str]:
    middle, high, largest = (format_number(row[name]) for name in ("p50", "p99", "max"))
    lines = [f"median {middle}, p99 {high}, max {largest}"]
    if row["share_zero"] > 0:
        lines.append(f"exactly 0: {percent(row['share_zero'])} of tokens")
    return lines


def explain_rounds(
    summary: pd.DataFrame, scene: RoundScene, *, has_survivors: bool
) -> list[str]:
    """Name the onset, and explain layers and marks, a line each."""
    lines = _describe_onset(scene)
    if has_survivors:
        dashes = colorize("╌╌", scene.theme.lines[0])
        lines.append(f"{dashes} the same samples at round 0")
    if scene.axis.log:
        lines += _explain_quantiles(summary, scene.theme)
    return lines + explain_marks(summary)


def _describe_onset(scene: RoundScene) -> list[str]:
    onset = scene.onset
    if onset is None:
        return []
    is_marked = scene.marked_round is not None
    mark = f"{colorize('●', scene.theme.mark)} " if is_marked else ""
    before, after = format_number(onset.before), format_number(onset.after)
    return [
        f"{mark}onset: round {onset.round} (95 %: {onset.interval})",
        f"mean |diff| {before}, then {after} nat",
    ]


def _explain_quantiles(summary: pd.DataFrame, theme: Theme) -> list[str]:
    parts = zip(RIBBONS, ("to 90 %", "to 99 %", "to the largest"), strict=True)
    bars = [f"{colorize('▮', tint(theme, bar[2]))} {text}" for bar, text in parts]
    line = f"tokens: {colorize('━', theme.lines[0])} median  {'  '.join(bars)}"
    count = (summary["num_tokens"] - summary["num_nonfinite"]).to_numpy()
    zeros = float(np.dot(count, summary["share_zero"].fillna(0))) / max(count.sum(), 1)
    return [line, *([f"exactly 0: {percent(zeros)} of tokens"] if zeros else [])]

"""The figure of two batches: means per round, differences, a strip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.core.divergence import get_measure
from rounddiag.core.measured import Measured
from rounddiag.errors import FrameError
from rounddiag.figures._parts.axes import MeanAxis, choose_axis, note_cut, note_zeros
from rounddiag.figures._parts.canvas import (
    NARROW_PLOT,
    Theme,
    ThemeName,
    colorize,
)
from rounddiag.figures._parts.data import (
    PlotInputs,
    note_unknown_rounds,
    prepare,
    without_layers,
)
from rounddiag.figures._parts.heatmap_cells import add_hatching, trace_outlines
from rounddiag.figures._parts.labels import (
    format_number,
    shorten_name,
    tick_step,
)
from rounddiag.figures._parts.lines import RoundLine, style_line, thin_rounds
from rounddiag.figures._parts.means import (
    HOVER,
    add_means,
    axis_title,
    caution_few,
    describe_interval,
    explain_marks,
    fill_colors,
    interval_bars,
    unit_suffix,
)
from rounddiag.figures._parts.panels import (
    MEANS_HEIGHT,
    Panel,
    add_heatmap,
    new_panel_figure,
)
from rounddiag.figures._parts.scales import add_color_bar, choose_scale
from rounddiag.schema import METRICS, ROUND, ColumnSchema
from rounddiag.stats import round_summary
from rounddiag.stats.comparison import compare_batches, name_batches
from rounddiag.stats.inputs import Data
from rounddiag.wording import pluralize

_TITLE = "Mismatch per round, compared"
# How far beside its round a batch is drawn, in rounds.
_SHIFT = 0.1
# Pixels between panels, of a row of the strip, and of the panel of differences.
_GAP, _ROW, _DIFFERENCE = 26, 18, 170
# Characters per line over the colour bar in a figure of 400 pixels.
_BAR_TITLE = 44


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The two batches of a figure.

    Attributes
    ----------
    before, after: A line each, with its `stats.round_summary`.
    differences: As `stats.compare_batches` gives them.
    inputs: Those of the first batch.
    """

    before: RoundLine
    after: RoundLine
    differences: pd.DataFrame
    inputs: PlotInputs

    @property
    def lines(self) -> tuple[RoundLine, RoundLine]:
        """Both lines, in order."""
        return self.before, self.after

    @property
    def num_rounds(self) -> int:
        """One more than the last round of either batch."""
        lasts = [line.rows["round"].max() for line in self.lines if len(line.rows)]
        return int(max(lasts, default=-1)) + 1

    @property
    def marker_size(self) -> float:
        """How large markers are, in pixels."""
        return min(8.0, max(3.0, NARROW_PLOT / (2 * self.num_rounds)))


@without_layers
def plot_compare(
    batches: Mapping[str, Data] | Sequence[Data],
    *,
    metric: str = "abs_diff",
    a: str = "old",
    b: str = "rollout",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the mismatch per round of two batches, and their difference.

    Parameters
    ----------
    batches : mapping of str to Batch, or sequence of Batch
        Two, the one that the other is compared with first; token frames and paths of
        files are accepted.
    metric, a, b, theme : as everywhere, see `help(rounddiag)`

    Returns
    -------
    plotly.graph_objects.Figure
        The mean of each batch and round with its interval, on a logarithmic axis where
        it has no sign; the differences of `stats.compare_batches`; and the same means
        as colours in one range.

    Notes
    -----
    How to read it: two healthy batches lie on each other above, and their differences
    on zero. A fault introduced by a change raises one of them, in all rounds (a
    temperature, a precision, older weights) or from some round on (a context that one
    engine cuts). Trust a difference whose interval excludes zero. Where the batches are
    paired, samples are compared with themselves, which separates small faults from the
    choice of samples; the title says how many pairs there are. A hollow point has fewer
    than 5 samples. The strip has one range of colours for both. A metric with a sign,
    such as `diff`, has a linear axis: noise lies on both sides of zero, another
    temperature or other weights on one.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batches = {
    ...     name: rd.load(f"sample_data/{name}.parquet")
    ...     for name in ("healthy", "image_window")
    ... }
    >>> rd.plot_compare(batches).layout.yaxis2.title.text
    'difference of means [nat]'
    """
    options: dict[str, Any] = {"a": a, "b": b, "metric": metric}
    options |= {"theme": theme}
    inputs = _prepare_both(name_batches(batches, a, b), options)
    first = next(iter(inputs.values()))
    data = {name: own.data for name, own in inputs.items()}
    before, after = _style_batches(data, first.metric, first.theme)
    rows, note = thin_rounds(compare_batches(data, metric=first.metric))
    has_strip = not note  # its cells would be thinner than a pixel
    before, after = (
        replace(line, rows=thin_rounds(line.rows)[0]) for line in (before, after)
    )
    comparison = Comparison(before=before, after=after, differences=rows, inputs=first)
    means = pd.concat([line.rows for line in comparison.lines])
    if means.empty:
        return first.empty_figure(_TITLE)
    axis = choose_axis(means, first.metric)
    captions = [
        f"{shorten_name(name)}: {line}"
        for name, own in data.items()
        for line in note_unknown_rounds(own)
    ]
    captions += _explanation(comparison, means, axis) + note
    panels = _panels(comparison, axis)[: 3 if has_strip else 2]
    rounds = {
        "title": {"text": ROUND.label},
        "range": [-0.6, comparison.num_rounds - 0.4],
        "dtick": tick_step(comparison.num_rounds),
    }
    figure = new_panel_figure(
        *(_TITLE, captions, panels, rounds, first.theme),
        has_heatmap=has_strip,
        gap=_GAP,
    )
    _add_means(figure, comparison, axis)
    _add_differences(figure, comparison)
    if has_strip:
        _add_strip(figure, comparison)
    return figure


def _prepare_both(
    batches: Mapping[str, Measured], options: Mapping[str, Any]
) -> dict[str, PlotInputs]:
    inputs = {name: prepare(data, **options) for name, data in batches.items()}
    pairs = dict.fromkeys(own.data.pair for own in inputs.values())
    if len(pairs) > 1:
        raise FrameError.build(
            key="batches",
            expected="batches of one pair of scores",
            found=" and ".join(f"{pair.a!r} - {pair.b!r}" for pair in pairs),
            advice="Choose `a` and `b` for both of them.",
        )
    return inputs


def _style_batches(
    data: Mapping[str, Measured], metric: str, theme: Theme
) -> list[RoundLine]:
    """Summarise each batch, in a colour that encodes no magnitude.

    The second batch has the colour of more than before: with that of less, a mean that
    rose would look like a cell that fell.
    """
    lines = []
    for index, (name, batch) in enumerate(data.items()):
        rows = round_summary(batch, metric=metric).sort_values("round")
        short = shorten_name(name)
        heads = [f"{short}, round {round_}" for round_ in rows["round"]]
        rows = rows.assign(place=rows["round"], head=heads)
        line = style_line(index, len(data), name, rows, theme)
        color = theme.changes[1] if index else theme.text
        shift = _SHIFT if index else -_SHIFT
        lines.append(replace(line, name=short, color=color, dash="solid", shift=shift))
    return lines


def _explanation(
    comparison: Comparison, means: pd.DataFrame, axis: MeanAxis
) -> list[str]:
    before, after = comparison.lines
    num_pairs = comparison.differences["num_pairs"].max()
    lines = [
        f"{_sign(before)} {before.name}: the baseline",
        f"{_sign(after)} {after.name}: "
        + (
            f"paired, {pluralize(num_pairs, 'sample')}"
            if num_pairs > 0
            else "not paired by ids"
        ),
    ]
    lines += note_zeros(means, axis, "lower") + note_cut(means, axis)
    return lines + explain_marks(means)


def _sign(line: RoundLine) -> str:
    return colorize(line.sign, line.color)


def _add_means(figure: go.Figure, comparison: Comparison, axis: MeanAxis) -> None:
    inputs = comparison.inputs
    for line in comparison.lines:
        add_means(
            figure,
            line,
            inputs,
            values=axis.place(line.rows["mean"]).to_numpy(),
            floor=axis.zero,
            marker={"size": comparison.marker_size},
        )
        _mark_cut(figure, line, axis)


def _mark_cut(figure: go.Figure, line: RoundLine, axis: MeanAxis) -> None:
    """Draw an arrow where an interval leaves the axis."""
    rows = line.rows
    for end, symbol, is_cut in (
        (axis.low, "triangle-down", rows["ci_low"] < axis.low),
        (axis.high, "triangle-up", rows["ci_high"] > axis.high),
    ):
        rounds = rows.loc[is_cut & rows["mean"].notna(), "round"]
        if len(rounds):
            figure.add_scatter(
                x=rounds.to_numpy() + line.shift,
                y=np.full(len(rounds), end),
                mode="markers",
                marker={"symbol": symbol, "size": 6, "color": line.color},
                hovertemplate="the interval reaches beyond the axis<extra></extra>",
                cliponaxis=False,
            )


def _add_differences(figure: go.Figure, comparison: Comparison) -> None:
    """Draw how much larger the second batch's mean is than the first's."""
    inputs, line = comparison.inputs, comparison.after
    rows = comparison.differences
    rows = rows[rows["difference"].notna()]
    figure.add_scatter(
        x=rows["round"].to_numpy() + line.shift,
        y=rows["difference"].to_numpy(),
        yaxis="y2",
        mode="markers",
        marker={
            "symbol": line.symbol,
            "size": comparison.marker_size,
            "color": fill_colors(rows, line.color, inputs.theme.paper),
            "line": {"color": line.color, "width": 1.5},
        },
        error_y=interval_bars(rows, line.color, "difference"),
        customdata=[
            [f"{line.name}, round {row['round']}", _hover_text(row, inputs)]
            for _, row in rows.iterrows()
        ],
        hovertemplate=HOVER,
        cliponaxis=False,
    )


def _hover_text(row: pd.Series[Any], inputs: PlotInputs) -> str:
    count, before = row["num_samples"], row["num_baseline_samples"]
    unit = unit_suffix(inputs.metric, inputs.pair)
    sizes = f"{pluralize(count, 'sample')}, {before:,} before"
    lines = [
        f"difference {format_number(row['difference'])}{unit}",
        describe_interval(row["ci_low"], row["ci_high"]),
        pluralize(count, "pair") if row["num_pairs"] > 0 else sizes,
    ]
    if row["is_few"]:
        lines.append(caution_few(min(count, before)))
    return "<br>".join(lines)


def _add_strip(figure: go.Figure, comparison: Comparison) -> None:
    """Draw the means of both batches as colours of one range, a row a batch."""
    inputs = comparison.inputs
    means = np.full((2, comparison.num_rounds), np.nan)
    has_round = np.zeros(means.shape, dtype=bool)
    for row, line in enumerate(comparison.lines):
        means[row, line.rows["round"]] = line.rows["mean"]
        has_round[row, line.rows["round"]] = True
    names = np.array([line.name for line in comparison.lines], dtype=object)
    scale = choose_scale(means, is_signed=get_measure(inputs.metric).is_signed)
    add_heatmap(
        figure,
        places=np.arange(comparison.num_rounds),
        values=means,
        has_value=has_round,
        hover="<b>%{text}, round %{x}</b>"
        f"<br>mean %{{z:.3g}}{unit_suffix(inputs.metric, inputs.pair)}",
        scale=scale,
        axis="y3",
        theme=inputs.theme,
        text=np.repeat(names[:, None], comparison.num_rounds, axis=1),
        xgap=1,
        ygap=1,
    )
    add_hatching(figure, *trace_outlines(~has_round), inputs.theme, yaxis="y3")
    title = axis_title(inputs.metric, inputs.pair, width=_BAR_TITLE)
    add_color_bar(figure, scale, means, title, inputs.theme)


def _panels(comparison: Comparison, axis: MeanAxis) -> list[Panel]:
    inputs = comparison.inputs
    title = {"title": {"text": axis_title(inputs.metric, inputs.pair)}}
    unit = inputs.pair.unit(METRICS[inputs.metric])
    difference = {
        "title": {
            "text": ColumnSchema("difference", "difference of means", unit=unit).label
        },
        "zeroline": True,
        "nticks": 6,
    }
    strip = {
        "range": [1.5, -0.5],
        "tickvals": [0, 1],
        "ticktext": [_sign(line) for line in comparison.lines],
        "showgrid": False,
    }
    return [
        Panel(height=MEANS_HEIGHT, axis={**axis.layout(), **title}),
        Panel(height=_DIFFERENCE, axis=difference),
        Panel(height=2 * _ROW, axis=strip),
    ]

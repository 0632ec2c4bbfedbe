"""The figure of means per round, with the number of samples and tokens of each."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.core.divergence import get_measure
from rounddiag.errors import FrameError
from rounddiag.figures._parts.axes import (
    LinearAxis,
    LogAxis,
    MeanAxis,
    tick_text,
)
from rounddiag.figures._parts.canvas import (
    NARROW_PLOT,
    Theme,
    ThemeName,
    colorize,
    with_opacity,
)
from rounddiag.figures._parts.data import PlotInputs, prepare
from rounddiag.figures._parts.labels import (
    format_number,
    subject,
    tick_step,
)
from rounddiag.figures._parts.lines import format_key, split_by_column, thin_rounds
from rounddiag.figures._parts.means import (
    COUNT_PANELS,
    HEIGHT,
    HEIGHT_WITHOUT_COUNTS,
    add_lines,
    axis_title,
    explain_marks,
    set_panels,
)
from rounddiag.findings.onset import Onset
from rounddiag.schema import ROUND, SUMMARY, mean_column
from rounddiag.stats import few_rows, round_summary, survivors
from rounddiag.stats.inputs import Data
from rounddiag.wording import percent

# The columns of a summary that the figure needs.
_COLUMNS = (
    *("round", "num_samples", "num_tokens", "num_nonfinite", "share_zero"),
    *("mean", "ci_low", "ci_high", "p50", "p90", "p99", "max"),
)
# Whether each layer is drawn by default.
_LAYERS = {"quantiles": False, "survivors": True, "counts": True}
# What a layer needs.
_NEEDS = {
    "quantiles": "a metric that is never negative, and no `by`",
    "survivors": "a batch or its tokens, |diff| weighted by token from the first round"
    " on, and no `by`",
}
# From one quantile to the next, and the strength of the bar's colour.
_RIBBONS = (
    ("p50", "p90", 0.85, "to 90 %"),
    ("p90", "p99", 0.5, "to 99 %"),
    ("p99", "max", 0.25, "to the largest"),
)
# Smaller quantiles, zeros among them, are drawn at the lower edge.
_FLOOR = 1e-6
# What `last_aligned` counts.
_FROM_END = "round, counted from the last of each sample: −1"
# How much more room a negative round takes on the x axis.
_MINUS = 1.5
# Characters of a line of the y axis' title: many lines by value leave a low plot.
_TITLE_WIDTH = 26


def plot_rounds(  # noqa: PLR0913 all but the first are keywords
    data: Data,
    *,
    metric: str = "abs_diff",
    weight: str = "token",
    by: str | None = None,
    last_aligned: bool = False,
    onset: Onset | Literal[False] | None = None,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot a metric's mean per round, with intervals and counts.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, its token frame (sample, round, diff), or its round summary,
        made with the same options.
    weight : {"token", "sample"}
        What has equal weight in the mean.
    by : str, optional
        A column of samples or rounds, such as `status` or `group_id`: one line for
        each of its values, at most 8.
    last_aligned : bool
        Count rounds from the end of each sample: the last one is -1.
    onset : Onset or False, optional
        The round from which on the batch differs, which is marked:
        `rounddiag.diagnose(batch).onset`. None is marked where it is left out, and
        where rounds are counted from the end.
    layers : mapping, optional
        Which parts are drawn beside the means:

        - `quantiles`, off unless asked for: median to 90 %, to 99 % and to the largest
          of the tokens, on a logarithmic axis that ends at 1e-6;
        - `survivors`, the samples that reach each round, measured at round 0; on for a
          batch or a token frame, where the other options are the default;
        - `counts`, of samples and tokens.
    metric, a, b, theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: in a healthy batch the points lie on a level line near the noise of
    the two engines' arithmetic, and the intervals overlap. A step at one round, or a
    rise from round to round, means that the engines see different contexts from there
    on. The interval (a vertical line) is clustered by sample, or by group where there
    are groups; where two of them do not overlap, the rounds differ by more than the
    choice of samples explains. Check the bars before you trust a rise at the end: few
    samples get that far, and they may differ from the others in all rounds. The dashed
    line shows whether they do: if it rises as the points do, the rise comes from which
    samples are left; if it stays level, the rise is real. A hollow point has fewer
    than 5 samples, and is never marked. Of more than 2,000 rounds, evenly spaced ones
    and the onset are drawn.

    Quantiles show what the mean consists of. If all bars rise together, every token is
    a little off (noise, another precision or temperature); where the median stays and
    the largest rise, a few tokens are far off (another context, a template). Aligned at
    the end, a fault of the last action stands out, which is spread over all rounds
    otherwise. With `by`, a fault of one rank, replica or kind of sample is a line that
    leaves the others.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_rounds(batch).layout.yaxis.title.text
    'mean |old − rollout|<br>log-prob [nat]'
    >>> rd.plot_rounds(batch, layers={"quantiles": True}).layout.yaxis.type
    'log'
    """
    inputs = prepare(
        data, a, b, metric=metric, layers=layers, known=_LAYERS, theme=theme
    )
    metric, colors = inputs.metric, inputs.theme
    measure, is_summary = get_measure(metric), inputs.means is not None
    weighting = measure.weight or weight
    options = {"weight": weight, "last_aligned": last_aligned}
    is_usual = (metric, by, weight, last_aligned) == ("abs_diff", None, "token", False)
    fits = {
        "survivors": is_usual and not is_summary,
        "quantiles": by is None and not measure.is_signed,
    }
    drawn = _choose_layers(layers or {}, fits, is_summary=is_summary)
    summary = _read_summary(inputs, by, weighting, options)
    summary = summary.assign(place=summary["round"]).sort_values("place", kind="stable")
    title = f"{subject(metric)} per round" + (", from the end" if last_aligned else "")
    if summary.empty:
        return inputs.empty_figure(title)
    num_rounds = int(summary["round"].max() - min(summary["round"].min(), 0)) + 1
    onset = None if last_aligned else onset or None
    rows, note = thin_rounds(summary, onset.round if onset else ())
    left = None
    if drawn["survivors"] and num_rounds > 1:
        left = thin_rounds(survivors(inputs.data))[0]
    axis = _choose_axis(summary, left, has_quantiles=drawn["quantiles"])
    rows = _describe_rows(rows, onset)
    lines = split_by_column(rows, by, colors)
    captions = format_key(by, lines)
    captions += _describe_onset(onset, colors, is_marked="is_marked" in rows)
    captions += (
        [] if left is None else [f"{_dashes(colors)} the same samples at round 0"]
    )
    captions += _explain_quantiles(summary, colors) if drawn["quantiles"] else []
    captions += explain_marks(summary) + note
    plot = HEIGHT if drawn["counts"] else HEIGHT_WITHOUT_COUNTS
    figure = inputs.new_figure(title, captions, plot=plot)
    _set_axes(figure, summary, num_rounds, axis)
    extra = "" if weighting == "token" else f", {weighting}-weighted"
    text = axis_title(metric, inputs.pair, note=extra, width=_TITLE_WIDTH)
    figure.layout.yaxis.title.text = text
    if onset and "is_marked" in rows:
        _add_guide(figure, onset.round, colors)
    if drawn["quantiles"]:
        _add_ribbons(figure, rows, axis, num_rounds, colors)
    if left is not None:
        _add_survivors(figure, left, axis, colors)
    panels = COUNT_PANELS if drawn["counts"] else {}
    add_lines(figure, lines, inputs, axis, num_places=num_rounds, panels=panels)
    if drawn["counts"]:
        set_panels(figure, summary, SUMMARY, inputs)
    return figure


def _choose_layers(
    chosen: Mapping[str, bool], fits: Mapping[str, bool], *, is_summary: bool
) -> dict[str, bool]:
    for name, needs in _NEEDS.items():
        if chosen.get(name) and not fits[name]:
            raise FrameError.build(
                key=name,
                expected=needs,
                found="a round summary" if is_summary else "other options",
                advice="Leave the layer out, or the options.",
            )
    return {
        name: fits.get(name, True) and chosen.get(name, is_usual)
        for name, is_usual in _LAYERS.items()
    }


def _read_summary(
    inputs: PlotInputs, by: str | None, weighting: str, options: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the summary per round; refuse one of other options."""
    summary = inputs.means
    if summary is None:
        return round_summary(inputs.data, metric=inputs.metric, by=by, **options)
    keys = ["round", *([] if by is None else [by])]
    SUMMARY.require(summary.columns, *keys[1:], *_COLUMNS)
    column = mean_column(inputs.metric)
    is_plain = weighting == "token" and column in summary
    is_repeated = summary.duplicated(keys).any()
    if is_repeated or (
        is_plain
        and not np.allclose(
            summary["mean"], summary[column], rtol=1e-6, atol=0, equal_nan=True
        )
    ):
        raise FrameError.build(
            expected=f"a round summary of metric={inputs.metric!r}, by={by!r}, "
            + ", ".join(f"{name}={value!r}" for name, value in options.items()),
            found="several rows of one round" if is_repeated else "another `mean`",
            advice="Pass the options that `rounddiag.round_summary` was given.",
        )
    return summary


def _describe_rows(rows: pd.DataFrame, onset: Onset | None) -> pd.DataFrame:
    """Add the lines of the hover text, and which means are marked, if any."""
    names = ("p50", "p99", "max", "share_zero")
    numbers = zip(*(rows[name] for name in names), strict=True)
    rows = rows.assign(
        head=[f"round {index}" for index in rows["round"]],
        details=pd.Series([_details(*row) for row in numbers], rows.index),
    )
    if onset is None:
        return rows
    is_marked = (rows["round"] == onset.round) & ~few_rows(rows)
    return rows.assign(is_marked=is_marked) if is_marked.any() else rows


def _details(median: float, high: float, largest: float, zero: float) -> list[str]:
    texts = map(format_number, (median, high, largest))
    line = "median {}, p99 {}, max {}".format(*texts)
    return [line, *([f"exactly 0: {percent(zero)} of tokens"] if zero > 0 else [])]


def _choose_axis(
    summary: pd.DataFrame, left: pd.DataFrame | None, *, has_quantiles: bool
) -> MeanAxis:
    """Fit the quantiles, or the means, whole intervals, and who is left."""
    if has_quantiles:
        drawn = summary[["mean", "p50", "p90", "p99", "max"]].to_numpy(np.float64)
        return LogAxis.around_values(drawn[np.isfinite(drawn) & (drawn >= _FLOOR)])
    if left is None:
        return LinearAxis.around(summary, inf)
    ends = dict.fromkeys(("mean", "ci_low", "ci_high"), left["first_mean_abs_diff"])
    return LinearAxis.around(pd.concat([summary, pd.DataFrame(ends)]), inf)


def _describe_onset(onset: Onset | None, theme: Theme, *, is_marked: bool) -> list[str]:
    if onset is None:
        return []
    mark = f"{colorize('●', theme.mark)} " if is_marked else ""
    before, after = format_number(onset.before), format_number(onset.after)
    return [
        f"{mark}onset: round {onset.round} (95 %: {onset.interval})",
        f"mean |diff| {before}, then {after} nat",
    ]


def _add_guide(figure: go.Figure, index: int, theme: Theme) -> None:
    """Draw a line from the marked round's mean down to its counts."""
    line = {"color": theme.mark, "width": 1, "dash": "dot"}
    ends = {"x0": index, "x1": index, "y0": 0, "y1": 1, "yref": "paper"}
    figure.add_shape(type="line", layer="below", line=line, **ends)


def _add_ribbons(
    figure: go.Figure, rows: pd.DataFrame, axis: MeanAxis, num_rounds: int, theme: Theme
) -> None:
    """Draw bars from quantile to quantile, and a stroke at the median."""
    for low, high, strength, _ in _RIBBONS:
        base = axis.place(rows[low])
        figure.add_bar(
            x=rows["round"],
            base=base,
            y=axis.place(rows[high]) - base,
            width=0.9 * min(1, num_rounds / 6),
            marker={"color": with_opacity(theme.quiet, strength), "line": {"width": 0}},
            hoverinfo="skip",
        )
    figure.add_scatter(
        x=rows["round"],
        y=axis.place(rows["p50"]),
        mode="markers",
        marker={
            "symbol": "line-ew",
            "size": min(18, NARROW_PLOT / num_rounds),
            "line": {"width": 3, "color": theme.lines[0]},
        },
        hoverinfo="skip",
    )


def _explain_quantiles(summary: pd.DataFrame, theme: Theme) -> list[str]:
    bars = [
        f"{colorize('▮', with_opacity(theme.quiet, strength))} {text}"
        for _, _, strength, text in _RIBBONS
    ]
    line = f"tokens: {colorize('━', theme.lines[0])} median  {'  '.join(bars)}"
    count = (summary["num_tokens"] - summary["num_nonfinite"]).to_numpy()
    zeros = float(np.dot(count, summary["share_zero"].fillna(0))) / max(count.sum(), 1)
    is_low = (summary[["p50", "p90", "p99", "max"]] < _FLOOR).any(axis=None)
    return [
        line,
        *([f"exactly 0: {percent(zeros)} of tokens"] if zeros else []),
        *([f"at the lower edge: below {tick_text(_FLOOR)}"] if is_low else []),
    ]


def _dashes(theme: Theme) -> str:
    return colorize("╌╌", theme.lines[0])


def _add_survivors(
    figure: go.Figure, left: pd.DataFrame, axis: MeanAxis, theme: Theme
) -> None:
    """Draw the samples that reach each round, measured at round 0."""
    figure.add_scatter(
        x=left["round"],
        y=axis.place(left["first_mean_abs_diff"]),
        mode="lines",
        line={"color": theme.lines[0], "width": 1.5, "dash": "dash"},
        customdata=left["num_samples"],
        hovertemplate="%{customdata:,} samples reach round %{x}"
        "<br>at round 0 their mean is %{y:.3g} nat<extra></extra>",
    )


def _set_axes(
    figure: go.Figure, summary: pd.DataFrame, num_rounds: int, axis: MeanAxis
) -> None:
    is_aligned = bool((summary["round"] < 0).any())
    first, last = int(min(summary["round"].min(), 0)), int(summary["round"].max())
    figure.update_layout(
        xaxis={
            "title": {"text": _FROM_END if is_aligned else ROUND.label},
            "range": [first - 0.6, last + 0.6],
            "dtick": tick_step(round(num_rounds * (_MINUS if is_aligned else 1))),
            "tick0": -1 if is_aligned else 0,
            "tickangle": 0,
        },
        yaxis=axis.layout(),
    )

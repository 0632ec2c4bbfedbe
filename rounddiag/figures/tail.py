"""The figure of the tail: the share of tokens at or beyond each size of |diff|."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag.figures._parts.axes import LogAxis
from rounddiag.figures._parts.canvas import Theme, ThemeName, colorize
from rounddiag.figures._parts.data import prepare, without_layers
from rounddiag.figures._parts.labels import (
    CROSS,
    NO_TOKENS,
    count_nonfinite,
    format_number,
    shorten_value,
)
from rounddiag.figures._parts.lines import RoundLine, format_key, split_by_round
from rounddiag.figures._parts.means import note_left_out
from rounddiag.schema import ABS_DIFF, SHARE, Pair
from rounddiag.stats import tail_shares
from rounddiag.stats.inputs import Data
from rounddiag.stats.tail import RATIOS
from rounddiag.wording import percent, pluralize

# Height of the plot, and room for names at its right, in pixels.
_PLOT_HEIGHT, _RIGHT = 320, 84
# Names of lines must not touch.
_NAME_HEIGHT = 15
# Places at which the heights of lines are compared.
_GRID = 200
# Width of the stroke before a line's name, in pixels.
_STROKE = 14
_HOVER = (
    "<b>{by} {name}</b><br>at least %{{x:.3g}} nat: %{{y:.3%}}"
    "<br>%{{customdata:,}} tokens<extra></extra>"
)
_TITLE = "Tail of the mismatch"
# The axis begins where at least this share of a line's tokens remains.
_NEARLY_ALL = 0.9
# The axes end this far beyond the largest diff and share, in decades.
_BEYOND, _ABOVE = 0.3, 0.05
# How many decades of x and of y have a tick each.
_DECADES = (6, 8)


@without_layers
def plot_tail(
    data: Data,
    *,
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the share of tokens whose |old − rollout| log-prob is at least x.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame with the columns round and diff.
    by : str, optional
        A column of samples or rounds, such as `status`: a line for each of its values,
        at most 8, in place of groups of rounds.
    a, b, theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: a line is a group of rounds, and both axes are logarithmic. In a
    healthy batch the lines coincide and fall steeply long before the shaded ratios:
    arithmetic noise has no tokens whose probabilities differ by a factor of 2. A line
    that lies right of the others by the same factor at all heights is a round with more
    noise; one that leaves them in the lower half only, with a shelf or a slow decay,
    has a few tokens that are computed from another context. Read at the shaded edges,
    the lines are the shares that clipping at a ratio of 2 or 5 would touch. The end of
    a line is a single token and means little. With `by`, a fault of one rank, replica
    or kind of sample is a line that leaves the others.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_tail(batch).layout.xaxis.title.text
    '|old − rollout| log-prob [nat]'
    """
    inputs = prepare(data, a, b, theme=theme)
    shares = tail_shares(inputs.data, by=by)
    known = shares[(shares["abs_diff"] > 0) & (shares["num_tokens"] > 0)]
    if known.empty:
        return inputs.empty_figure(_TITLE, _why_empty(shares))
    lines = split_by_round(known, by, inputs.theme)
    captions = format_key(by, lines) + _explanation(shares, lines)
    figure = inputs.new_figure(_TITLE, captions, plot=_PLOT_HEIGHT)
    _set_axes(figure, lines, inputs.pair)
    _add_ratios(figure, inputs.theme)
    _add_lines(figure, lines, "round" if by is None else by)
    if by is None:
        figure.layout.margin.r = _RIGHT
        _add_names(figure, lines, inputs.theme)
    else:
        _add_ends(figure, lines)
    return figure


def _why_empty(shares: pd.DataFrame) -> str:
    count, undefined = _count_tokens(shares)
    if undefined:
        size = count_nonfinite(undefined)
        return f"{CROSS} {size}, and {count:,} of exactly 0: no tail"
    if count:
        return f"the diff of {pluralize(count, 'token')} is exactly 0: no tail"
    return NO_TOKENS


def _count_tokens(shares: pd.DataFrame) -> tuple[int, int]:
    """Return how many tokens there are with a finite diff, and without."""
    starts = shares[shares["abs_diff"] == 0]
    return int(starts["num_tokens"].sum()), int(starts["num_nonfinite"].sum())


def _explanation(shares: pd.DataFrame, lines: Sequence[RoundLine]) -> list[str]:
    count, undefined = _count_tokens(shares)
    captions = ["shaded: probabilities differ by a factor of 2, of 5"]
    # All lines begin at the same size, above 0.
    zeros = count - sum(int(line.rows["num_tokens"].iloc[0]) for line in lines)
    if zeros:
        share = percent(zeros / count)
        captions.append(f"exactly 0, so not on the axis: {share} of tokens")
    return captions + note_left_out(undefined)


def _set_axes(figure: go.Figure, lines: Sequence[RoundLine], pair: Pair) -> None:
    left = min(_level_until(line.rows) for line in lines)
    right = max(line.rows["abs_diff"].max() for line in lines)
    low, high = np.floor(np.log10(left)), np.log10(max(right, np.log(RATIOS[-1])))
    high += _BEYOND
    bottom = np.log10(min(line.rows["share"].min() for line in lines)) - 0.1
    figure.update_layout(
        xaxis={
            "title": {"text": pair.label(ABS_DIFF)},
            "tickangle": 0,
            **LogAxis(low=10**low, high=10**high).layout(_DECADES[0]),
        },
        yaxis={
            "title": {"text": SHARE.label},
            **LogAxis(low=10**bottom, high=10**_ABOVE).layout(_DECADES[1]),
        },
    )


def _level_until(rows: pd.DataFrame) -> float:
    """Return the largest size that nearly all tokens of a line reach."""
    is_level = rows["share"] >= _NEARLY_ALL * rows["share"].iloc[0]
    return float(rows["abs_diff"][is_level].max())


def _add_ratios(figure: go.Figure, theme: Theme) -> None:
    """Shade what lies beyond each ratio, and label where it begins."""
    end = 10 ** figure.layout.xaxis.range[1]
    # Two labels side by side must not touch where the axis has many decades.
    for ratio, anchor in zip(RATIOS, ("right", "left"), strict=True):
        figure.add_shape(
            type="rect",
            layer="below",
            x0=np.log(ratio),
            x1=end,
            y0=0,
            y1=1,
            yref="paper",
            fillcolor=theme.grid,
            opacity=0.5,
            line={"width": 0},
        )
        place = {"x": np.log10(np.log(ratio)), "xanchor": anchor}
        _add_label(figure, f"{format_number(ratio)}x", theme, **place)


def _add_label(figure: go.Figure, text: str, theme: Theme, **place: Any) -> None:  # noqa: ANN401 what plotly takes
    figure.add_annotation(
        text=text,
        y=1,
        yref="paper",
        yanchor="bottom",
        showarrow=False,
        font={"color": theme.muted},
        **place,
    )


def _add_lines(figure: go.Figure, lines: Sequence[RoundLine], by: str) -> None:
    for line in lines:
        figure.add_scatter(
            x=line.rows["abs_diff"].to_numpy(np.float32),
            y=line.rows["share"].to_numpy(np.float32),
            mode="lines",
            line={"color": line.color, "width": 2, "dash": line.dash},
            customdata=line.rows["num_tokens"].to_numpy(),
            hovertemplate=_HOVER.format(by=shorten_value(by), name=line.name),
        )


def _add_ends(figure: go.Figure, lines: Sequence[RoundLine]) -> None:
    for line in lines:
        end = line.rows.iloc[-1]
        figure.add_scatter(
            x=[end["abs_diff"]],
            y=[end["share"]],
            mode="markers",
            marker={"color": line.color, "symbol": line.symbol, "size": 9},
            hoverinfo="skip",
            cliponaxis=False,
        )


def _add_names(figure: go.Figure, lines: Sequence[RoundLine], theme: Theme) -> None:
    ends = pd.DataFrame([line.rows.iloc[-1] for line in lines])
    low, high = figure.layout.yaxis.range
    order = _order_lines(lines, figure.layout.xaxis.range, low)
    scale = _PLOT_HEIGHT / (high - low)
    wanted = (np.log10(ends["share"].to_numpy()[order]) - low) * scale
    for index, place in zip(order, spread_apart(wanted, _NAME_HEIGHT), strict=True):
        _add_name(figure, lines[index], low + place / scale, theme)
    # Over the names, which begin with a stroke.
    over = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": _STROKE}
    _add_label(figure, "round", theme, **over)


def _order_lines(
    lines: Sequence[RoundLine], x_range: Sequence[float], low: float
) -> np.ndarray[Any, Any]:
    """Return the lines from the highest to the lowest, by their mean height as drawn.

    A line that has ended is as low as the plot.
    """
    left, right = x_range
    grid = np.linspace(left, right, _GRID)
    heights = []
    for line in lines:
        x, share = (np.log10(line.rows[name]) for name in ("abs_diff", "share"))
        heights.append(np.interp(grid, x, share, right=low).mean())
    return np.argsort(-np.array(heights), kind="stable")


def spread_apart(places: np.ndarray[Any, Any], gap: float) -> list[float]:
    """Move places upwards until each is above the next one by a gap."""
    moved: list[float] = []
    for place in places[::-1].tolist():
        moved.insert(0, max(place, moved[0] + gap) if moved else place)
    return moved


def _add_name(figure: go.Figure, line: RoundLine, place: float, theme: Theme) -> None:
    right, end = figure.layout.xaxis.range[1], line.rows.iloc[-1]
    figure.add_scatter(
        x=[end["abs_diff"], 10**right],
        y=[end["share"], 10**place],
        mode="lines+markers",
        line={"color": line.color, "width": 1, "dash": "dot"},
        marker={"color": line.color, "size": [6, 0], "line": {"color": theme.paper}},
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.add_annotation(
        text=f"{colorize('━', line.color)} {line.name}",
        x=1,
        xref="paper",
        y=place,
        xanchor="left",
        showarrow=False,
        font={"color": theme.text},
    )

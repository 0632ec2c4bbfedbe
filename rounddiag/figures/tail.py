"""How heavy the tail is: the share of tokens at or beyond each size of |diff|."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.canvas import TOP, colored, empty_figure, new_figure
from rounddiag.figures.labels import CROSS, count, number
from rounddiag.figures.round_groups import group_styles
from rounddiag.figures.sources import tails_of
from rounddiag.figures.theme import theme_of
from rounddiag.schema import ABS_DIFF, SHARE
from rounddiag.stats.tails import RATIOS

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import Theme, ThemeName

_PLOT_HEIGHT, _BOTTOM = 320, 52
# Room for the labels of the lines, right of the plot, in pixels.
_RIGHT = 84
# Labels of lines must not touch.
_LABEL_HEIGHT = 15
# The axis begins where this share of a line's tokens is left at least.
_NEARLY_ALL = 0.9
# The axis ends this far beyond the largest, in decades.
_BEYOND = 0.2
# Width of the stroke before a line's name, in pixels.
_STROKE = 14
_HOVER = (
    "<b>round {rounds}</b><br>at least %{{x:.3g}} nat: %{{y:.3%}}"
    "<br>%{{customdata:,}} tokens<extra></extra>"
)


def plot_tail(
    data: Batch | pd.DataFrame, *, theme: ThemeName | None = None
) -> go.Figure:
    """Plot the share of tokens whose |old - rollout| log-prob is at least x.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame with the columns round and diff.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure

    Raises
    ------
    FrameError
        If a frame lacks a column.

    Notes
    -----
    How to read it: a line is a group of rounds, and both axes are logarithmic. In a
    healthy batch the lines lie on each other and fall steeply long before the shaded
    ratios: arithmetic noise has no tokens whose probabilities differ by a factor of 2.
    A line that lies right of the others by the same factor at all heights is a round
    with more noise; one that leaves them in the lower half only, with a shelf or a slow
    decay, has a few tokens that are computed from another context. Read at the shaded
    edges, the lines are the shares that clipping at a ratio of 2 or 5 would touch.
    The end of a line is one token, and says little.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rd.plot_tail(batch).layout.xaxis.title.text
    '|old - rollout| log-prob [nat]'
    """
    look = theme_of(theme)
    found = tails_of(data)
    drawn = found[(found["abs_diff"] > 0) & (found["num_tokens"] > 0)]
    title = "Tail of the mismatch"
    if drawn.empty:
        return empty_figure(title, _why_empty(found), look)
    height = TOP + _PLOT_HEIGHT + _BOTTOM
    lines = _explanation(found, drawn)
    figure = new_figure(title, lines, look, height=height, bottom=_BOTTOM)
    figure.layout.margin.r = _RIGHT
    _set_axes(figure, drawn)
    _add_ratios(figure, look)
    _add_lines(figure, drawn, look)
    return figure


def _why_empty(found: pd.DataFrame) -> str:
    num, undefined = _of_all(found)
    if num:
        return f"the diff of {count(num, 'token')} is exactly 0: no tail"
    if undefined:
        return f"{CROSS} {count(undefined, 'token')}, none with a finite diff"
    return "no generated tokens: the response mask is 0"


def _of_all(found: pd.DataFrame) -> tuple[int, int]:
    """Return how many tokens there are with a finite diff, and without."""
    starts = found[found["abs_diff"] == 0]
    return int(starts["num_tokens"].sum()), int(starts["num_nonfinite"].sum())


def _explanation(found: pd.DataFrame, drawn: pd.DataFrame) -> list[str]:
    num, undefined = _of_all(found)
    lines = ["shaded: probabilities differ by a factor of 2, of 5"]
    zeros = num - int(_starts(drawn)["num_tokens"].sum())
    if zeros:
        share = f"{number(100 * zeros / num)} %"
        lines.append(f"exactly 0, so not on the axis: {share} of tokens")
    if undefined:
        lines.append(f"left out: {count(undefined, 'token')} whose diff is not finite")
    return lines


def _starts(drawn: pd.DataFrame) -> pd.DataFrame:
    """Return the first point of each line: they all begin at the same size."""
    return drawn.drop_duplicates("rounds")


def _set_axes(figure: go.Figure, drawn: pd.DataFrame) -> None:
    start = _starts(drawn).set_index("rounds")["share"]
    is_level = drawn["share"] >= _NEARLY_ALL * drawn["rounds"].map(start)
    left = drawn[is_level].groupby("rounds")["abs_diff"].max()
    right = max(drawn["abs_diff"].max(), RATIOS[-1])
    low, high = np.floor(np.log10(left.min())), np.log10(right) + _BEYOND
    bottom = np.log10(drawn["share"].min()) - 0.1
    figure.update_layout(
        xaxis={
            "title": {"text": ABS_DIFF.label},
            "type": "log",
            "range": [low, high],
            "dtick": np.ceil((high - low) / 6),
            "tickangle": 0,
        },
        yaxis={
            "title": {"text": SHARE.label},
            "type": "log",
            "range": [bottom, 0.05],
            "dtick": np.ceil(-bottom / 8),
        },
    )


def _add_ratios(figure: go.Figure, look: Theme) -> None:
    """Shade what lies beyond each ratio, and label where it begins."""
    end = 10 ** figure.layout.xaxis.range[1]
    for ratio in RATIOS:
        figure.add_shape(
            type="rect",
            layer="below",
            x0=np.log(ratio),
            x1=end,
            y0=0,
            y1=1,
            yref="paper",
            fillcolor=look.grid,
            opacity=0.5,
            line={"width": 0},
        )
    sides = zip(RATIOS, ("right", "left"), strict=True)
    for ratio, anchor in sides:
        place = {"x": np.log10(np.log(ratio)), "xanchor": anchor}
        _add_label(figure, f"{number(ratio)}x", look, **place)
    # Over the names of the lines, which begin with a stroke.
    place = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": _STROKE}
    _add_label(figure, "round", look, **place)


def _add_label(figure: go.Figure, text: str, look: Theme, **place: Any) -> None:  # noqa: ANN401 what plotly takes
    figure.add_annotation(
        text=text,
        y=1,
        yref="paper",
        yanchor="bottom",
        showarrow=False,
        font={"color": look.muted},
        **place,
    )


def _add_lines(figure: go.Figure, drawn: pd.DataFrame, look: Theme) -> None:
    groups = group_styles(drawn["rounds"].unique().tolist(), look)
    for group in groups:
        part = drawn[drawn["rounds"] == group.name]
        figure.add_scatter(
            x=part["abs_diff"].to_numpy(np.float32),
            y=part["share"].to_numpy(np.float32),
            mode="lines",
            line={"color": group.color, "width": 3 if group is groups[0] else 2},
            customdata=part["num_tokens"].to_numpy(),
            hovertemplate=_HOVER.format(rounds=group.name),
        )
    ends = drawn.drop_duplicates("rounds", keep="last")
    ends = ends.sort_values(["share", "abs_diff"], ascending=[False, True])
    colors = {group.name: group.color for group in groups}
    places = _label_places(figure, ends)
    for (_, row), place in zip(ends.iterrows(), places, strict=True):
        _add_name(figure, row, place, colors[row["rounds"]], look)


def _label_places(figure: go.Figure, ends: pd.DataFrame) -> list[float]:
    """Say how high the name of each line stands, as a logarithm of the share."""
    low, high = figure.layout.yaxis.range
    scale = _PLOT_HEIGHT / (high - low)
    wanted = (np.log10(ends["share"].to_numpy()) - low) * scale
    return [low + place / scale for place in spread(wanted, _LABEL_HEIGHT)]


def spread(places: np.ndarray[Any, Any], gap: float) -> list[float]:
    """Move places upwards until neighbours are apart; they come in descending order.

    Examples
    --------
    >>> spread(np.array([50.0, 9.0, 8.0, 0.0]), 10)
    [50.0, 20.0, 10.0, 0.0]
    """
    moved: list[float] = []
    for place in places[::-1].tolist():
        moved.insert(0, max(place, moved[0] + gap) if moved else place)
    return moved


def _add_name(
    figure: go.Figure, row: pd.Series[Any], place: float, color: str, look: Theme
) -> None:
    """Lead from the end of a line to its name, right of the plot."""
    right = figure.layout.xaxis.range[1]
    figure.add_scatter(
        x=[row["abs_diff"], 10**right],
        y=[row["share"], 10**place],
        mode="lines+markers",
        line={"color": color, "width": 1, "dash": "dot"},
        marker={"color": color, "size": [6, 0]},
        hoverinfo="skip",
        cliponaxis=False,
    )
    figure.add_annotation(
        text=f"{colored('━', color)} {row['rounds']}",
        x=1,
        xref="paper",
        y=place,
        xanchor="left",
        showarrow=False,
        font={"color": look.text},
    )

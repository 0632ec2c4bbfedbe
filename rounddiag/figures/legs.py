"""The figure of legs: what of the importance ratio comes from where."""

from __future__ import annotations

from typing import Any

import pandas as pd
import plotly.graph_objects as go
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from rounddiag.core.legs import (
    ENGINE_GAP,
    GAP_AND_LEAD,
    GAP_AND_STALENESS,
    GAP_TO_UPDATE,
    STALENESS,
    STALENESS_AND_UPDATE,
    UPDATE,
    WHOLE,
)
from rounddiag.core.legs import legs as compute_legs
from rounddiag.core.measured import number_values
from rounddiag.core.versions import LAG_COLUMNS
from rounddiag.figures._parts.canvas import (
    Theme,
    ThemeName,
    colorize,
    empty_figure,
    new_figure,
    theme_of,
)
from rounddiag.figures._parts.data import note_unknown_rounds
from rounddiag.figures._parts.labels import NO_TOKENS, shorten_name, shorten_value, wrap
from rounddiag.figures._parts.means import note_left_out
from rounddiag.schema import LEGS
from rounddiag.stats.inputs import Data, open_measured
from rounddiag.stats.staleness import describe_staleness

_TITLE = "Legs of the importance ratio"
_HEIGHT = 360
_BARS, _SIZE = [0.42, 1.0], [0.0, 0.34]  # domains of the panels
_LONGEST, _MOST_NAMES = 12, 24  # characters of a name under the axis; how many
_LINE = 80  # characters of a line below the title
_ORDER = (
    *(ENGINE_GAP, GAP_AND_STALENESS, GAP_AND_LEAD, GAP_TO_UPDATE),
    *(STALENESS, STALENESS_AND_UPDATE, UPDATE),
)

_WHY_ONE = {
    GAP_AND_STALENESS: "gap and staleness are one leg: no score by older weights",
    GAP_TO_UPDATE: "all three are one leg: no pass before the update (bypass)",
    STALENESS_AND_UPDATE: "staleness and update are one leg: no pass before the update",
}


def plot_legs(
    data: Data,
    *,
    by: str | None = "round",
    behaviour: str | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the mean log ratio of each leg, stacked, per round.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, or what `legs` made of one.
    by : str, optional
        The column of the x axis, as in `legs`; None for the step as a whole.
    behaviour : str, optional
        Of a batch: the score by the training engine with the sampler's weights.
    theme : as everywhere, see `help(rounddiag)`

    Notes
    -----
    How to read it: bars of one place add up to the mean log ratio that the trainer's
    loss sees, the diamond where there are several. Below, the effective sample size of
    the ratio of each leg: 1 where it weights all tokens alike. A leg with short bars
    and a small sample size has large ratios of both signs.

    Examples
    --------
    >>> import rounddiag as rd
    >>> figure = rd.plot_legs("sample_data/healthy.parquet")
    >>> figure.layout.xaxis.title.text
    'round'
    """
    inputs = open_measured(data)
    frame = inputs.frame
    if frame is None:
        frame = compute_legs(inputs.require_batch(), by=by, behaviour=behaviour)
    if by is None:
        by, frame = "tokens", frame.assign(tokens="all")
    LEGS.require(frame.columns, by, *LEGS.dtypes)
    colors, frame = theme_of(theme), _place(frame, by)
    if frame.empty:
        return empty_figure(_TITLE, NO_TOKENS, colors)
    keys = _colors(frame, colors)
    is_of_lag = by in LAG_COLUMNS and inputs.batch is not None
    share = describe_staleness(inputs.require_batch()) if is_of_lag else ""
    figure = new_figure(
        _TITLE,
        [
            *note_unknown_rounds(inputs),
            *describe_legs(frame, colors),
            *(["◆ whole ratio"] if len(keys) > 1 else []),
            *(wrap(share, _LINE).split("<br>") if share else []),
            *note_left_out(frame.attrs.get("num_nonfinite", 0)),
        ],
        colors,
        plot=_HEIGHT,
    )
    for name, color in keys.items():
        _add_leg(figure, frame[frame["leg"] == name], color)
    if len(keys) > 1:  # of one leg, the bar is the whole ratio
        _add_whole(figure, frame[frame["leg"] == WHOLE], colors)
    figure.update_layout(
        barmode="relative",
        xaxis={"title": {"text": shorten_name(by)}, "anchor": "y2", **_ticks(frame)},
        yaxis={"domain": _BARS, "title": {"text": LEGS["mean_log_ratio"].label}},
        yaxis2={
            "domain": _SIZE,
            "range": [-0.04, 1.04],
            "title": {"text": LEGS["effective_sample_size"].label},
        },
    )
    return figure


def _place(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """Place numbers on the axis as they are, and names beside each other."""
    if is_numeric_dtype(frame[by]) and not is_bool_dtype(frame[by]):
        return frame.assign(place=frame[by])
    code, names = number_values(by, frame[by].to_numpy())
    labels = [shorten_value(name, _LONGEST) for name in names]
    return frame.assign(place=code, label=[labels[place] for place in code])


def _ticks(frame: pd.DataFrame) -> dict[str, Any]:
    if "label" not in frame:
        return {}
    known = frame.drop_duplicates("place")
    every = -(-len(known) // _MOST_NAMES)
    shown = known.iloc[::every]
    ticks = {"tickvals": [*shown["place"]], "ticktext": [*shown["label"]]}
    return {**ticks, "tickangle": -90, "automargin": True}


def _colors(frame: pd.DataFrame, theme: Theme) -> dict[str, str]:
    """Return the colour of each leg, in the order of the product."""
    drawn = {*frame["leg"]}
    names = [leg for leg in _ORDER if leg in drawn]
    return dict(zip(names, theme.lines, strict=False))


def describe_legs(frame: pd.DataFrame, theme: Theme) -> list[str]:
    """Name the legs with their colours, and say why several are one."""
    keys = _colors(frame, theme)
    why = [text for leg, text in _WHY_ONE.items() if leg in keys]
    return [*(colorize(f"■ {name}", color) for name, color in keys.items()), *why]


def add_legs_of_steps(
    figure: go.Figure, frame: pd.DataFrame, axis: str, theme: Theme
) -> None:
    """Draw the mean log ratio of each leg over steps."""
    for name, color in _colors(frame, theme).items():
        rows = frame[frame["leg"] == name]
        figure.add_scatter(
            x=rows["step"].to_numpy(),
            y=rows["mean_log_ratio"].to_numpy(),
            yaxis=axis,
            name=name,
            mode="lines+markers",
            line={"color": color, "width": 1.5},
            marker={"size": 4, "color": color},
            customdata=rows[["k3", "effective_sample_size"]].to_numpy(),
            hovertemplate=f"<b>step %{{x:,}}, {name}</b><br>mean log ratio %{{y:.3g}}"
            " nat<br>k3 %{customdata[0]:.3g} nat<br>effective sample size"
            " %{customdata[1]:.3f}<extra></extra>",
        )


def _add_leg(figure: go.Figure, rows: pd.DataFrame, color: str) -> None:
    name = str(rows["leg"].iloc[0])
    data = rows[["k3", "effective_sample_size", "num_tokens"]].to_numpy()
    figure.add_bar(
        x=rows["place"],
        y=rows["mean_log_ratio"],
        name=name,
        marker={"color": color},
        customdata=data,
        hovertemplate=f"<b>{name}</b><br>mean log ratio %{{y:.3g}} nat"
        "<br>k3 %{customdata[0]:.3g} nat<br>effective sample size"
        " %{customdata[1]:.3f}<br>%{customdata[2]:,} tokens<extra></extra>",
    )
    figure.add_scatter(
        x=rows["place"],
        y=rows["effective_sample_size"],
        yaxis="y2",
        mode="lines+markers",
        marker={"color": color, "size": 7},
        line={"color": color},
        hovertemplate=f"<b>{name}</b><br>effective sample size %{{y:.3f}}"
        "<extra></extra>",
    )


def _add_whole(figure: go.Figure, rows: pd.DataFrame, theme: Theme) -> None:
    marker = {"symbol": "diamond", "size": 8, "color": theme.text}
    figure.add_scatter(
        x=rows["place"],
        y=rows["mean_log_ratio"],
        name="whole ratio",
        mode="markers",
        marker=marker,
        hovertemplate="<b>whole ratio</b><br>%{y:.3g} nat<extra></extra>",
    )

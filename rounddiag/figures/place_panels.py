"""The panels of a figure by places: means above, counts of samples and tokens below."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures import means
from rounddiag.figures.labels import wrapped
from rounddiag.figures.round_words import unit_of
from rounddiag.schema import METRICS, NUM_TOKENS, PLACES
from rounddiag.schema import PLACE_MEANS as MEANS

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.theme import Theme
    from rounddiag.schema import Pair
    from rounddiag.stats.places import By

# Bottom and top of the three panels, as shares of the plot; of the first alone.
_MEANS, _SAMPLES, _TOKENS, _ALONE = (0.46, 1.0), (0.23, 0.34), (0.0, 0.11), (0.0, 1.0)
# Characters of the axis title that the panel of the means has room for.
_AXIS = 38
# Ticks must not touch in a figure of 400 pixels: its room, and that of a character.
_PLOT_WIDTH, _CHARACTER, _BETWEEN = 300, 6.5, 10
_BEFORE_ANY = "no screenshot yet"


def estimand(metric: str, pair: Pair) -> str:
    """Say what the y axis of the means shows, in lines that fit it."""
    return wrapped(pair.label(METRICS[metric]), _AXIS)


def hover_texts(found: pd.DataFrame, by: By, metric: str) -> list[list[str]]:
    """Return what each bin says on hover, its first and last place before all."""
    pairs = zip(found["low"], found["high"], strict=True)
    names = [f"{PLACES[by].meaning}: {_name(low, high)}" for low, high in pairs]
    return means.hover_texts(found, names, unit_of(metric))


def add_means(
    figure: go.Figure, found: pd.DataFrame, hover: list[list[str]], look: Theme
) -> None:
    """Draw a point a bin, with its interval; a cross where it has no mean."""
    figure.add_scatter(
        x=found.index,
        y=found["mean"],
        mode="lines+markers",
        line={"color": look.muted, "width": 1},
        marker={
            "size": 8,
            "color": means.fills(found, look.text, look.paper),
            "line": {"color": look.text, "width": 1.5},
        },
        error_y=means.intervals(found, look.muted),
        customdata=hover,
        hovertemplate=means.HOVER,
        cliponaxis=False,
    )
    without = np.flatnonzero(found["mean"].isna())
    texts = [hover[i] for i in without]
    means.add_undefined(figure, without, np.zeros(len(without)), texts, look)


def add_counts(
    figure: go.Figure, found: pd.DataFrame, hover: list[list[str]], look: Theme
) -> None:
    """Draw how many samples and tokens each bin has."""
    for axis, column in (("y2", MEANS["num_samples"]), ("y3", NUM_TOKENS)):
        figure.add_bar(
            x=found.index,
            y=found[column.name],
            yaxis=axis,
            width=0.6 * min(1, len(found) / 15),  # thin also when they are few
            marker={"color": look.quiet, "line": {"width": 0}},
            customdata=hover,
            hovertemplate=means.HOVER,
        )
        means.add_head(figure, axis, column.label, look)


def set_axes(
    figure: go.Figure, found: pd.DataFrame, by: By, *, has_counts: bool
) -> None:
    """Name the places, label as many bins as fit, and share the plot."""
    labels = [f"{low:,.0f}".replace("nan", "none") for low in found["low"]]
    width = _CHARACTER * max(map(len, labels)) + _BETWEEN
    step = ceil(width * len(labels) / _PLOT_WIDTH)
    bins = "" if by == "images" else ", bins from"
    figure.update_layout(
        xaxis={
            "title": {"text": PLACES[by].label + bins},
            "range": [-0.6, len(found) - 0.4],
            "tickvals": list(found.index[::step]),
            "ticktext": labels[::step],
            "tickangle": 0,
            "anchor": "y3" if has_counts else "y",
        },
        yaxis={"domain": _MEANS if has_counts else _ALONE, "rangemode": "tozero"},
    )
    if has_counts:
        for name, column, domain in (
            ("yaxis2", "num_samples", _SAMPLES),
            ("yaxis3", "num_tokens", _TOKENS),
        ):
            ends = means.ends(int(found[column].max()))
            figure.layout[name] = {"domain": domain, **ends}


def _name(low: float, high: float) -> str:
    if np.isnan(low):
        return _BEFORE_ANY
    return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"

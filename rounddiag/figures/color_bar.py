"""The scale of an image's colours, printed under the plot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import plotly.graph_objects as go

    from rounddiag.figures.scale import LogScale
    from rounddiag.figures.signed_scale import SignedScale

    Array = np.ndarray[Any, Any]

# Room under the plot for the axis title and the colour bar, in pixels.
BOTTOM = 132
# The colour bar's title begins this far under the plot.
_BELOW = 58


def add_color_bar(
    figure: go.Figure, scale: LogScale | SignedScale, values: Array, title: str
) -> None:
    """Print the scale under a figure whose lower margin is `BOTTOM`.

    Parameters
    ----------
    figure : Figure
        With its final height and margins.
    scale : LogScale or SignedScale
    values : ndarray
        What the colours show: arrows say that some of it lies beyond the scale.
    title : str
    """
    marker = scale.bar(values)
    below = _BELOW / (figure.layout.height - BOTTOM - figure.layout.margin.t)
    marker["colorbar"] |= {
        "orientation": "h",
        "title": {"text": title, "side": "top", "font": {"size": 12}},
        "thickness": 12,
        "len": 1,
        "x": 0.5,
        "y": -below,
        "yanchor": "top",
        "ypad": 0,
        "tickangle": 0,
        "outlinewidth": 0,
    }
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker)

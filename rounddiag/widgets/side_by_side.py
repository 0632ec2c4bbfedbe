"""The heatmap of two batches: either of them, or their difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.figures import plot_heatmap
from rounddiag.figures.canvas import empty_figure
from rounddiag.figures.heat import range_of
from rounddiag.figures.theme import theme_of
from rounddiag.widgets.state import METRICS

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from rounddiag.figures.theme import ThemeName
    from rounddiag.widgets.compared import Compared
    from rounddiag.widgets.state import State


def heatmap_of_two(
    found: Compared, state: State, theme: ThemeName | None = None
) -> go.Figure:
    """Draw the cells of the batch that is looked at, or what they differ by.

    The rows are in the order of both batches; the colours of either have one range.
    """
    metric = METRICS[state.metric]
    if state.heatmap == "batch":
        own = found.sides[found.batch]
        return plot_heatmap(
            own.batch if own.is_all else own.rounds,
            order=found.order(state.order, metric),
            metric=metric,
            color_range=range_of(found.values(metric), metric),
            layers={"marginals": False},
            theme=theme,
        )
    why = found.comparison.why_apart
    if why:
        return empty_figure("Difference per sample and round", why, theme_of(theme))
    cells, known = found.differences(metric), found.comparison.partners[found.batch]
    order = [one for one in found.order(state.order, metric) if one in known]
    return plot_heatmap(
        cells,
        order=order,
        metric="difference",
        layers={"marginals": False},
        theme=theme,
    )

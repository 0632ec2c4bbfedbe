"""Two or more batches beside each other, and how much more they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from rounddiag.errors import FrameError
from rounddiag.figures.canvas import TOP, empty_figure, new_figure
from rounddiag.figures.color_bar import BOTTOM, add_color_bar
from rounddiag.figures.compare_layout import explanation, set_axes
from rounddiag.figures.compare_traces import add_differences, add_means, add_strip
from rounddiag.figures.compared import Compared, batch_styles
from rounddiag.figures.layers import layers_of
from rounddiag.figures.log_axis import LogAxis
from rounddiag.figures.scale import LogScale
from rounddiag.figures.theme import theme_of
from rounddiag.schema import METRICS
from rounddiag.stats import round_summary
from rounddiag.stats.comparison import differences, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures.theme import Theme, ThemeName

_MEASURE = METRICS["abs_diff"]
# As many as have a sign of their own.
_MOST = 8
_LAYERS = ("ci", "difference", "strip")


def plot_compare(
    batches: Mapping[str, Batch | pd.DataFrame] | Sequence[Batch | pd.DataFrame],
    *,
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the mismatch per round of two or more batches, and their difference.

    Parameters
    ----------
    batches : mapping of str to Batch, or sequence of Batch
        Up to 8, the one that the others are compared with first; token frames will do.
    layers : mapping, optional
        What to leave out: `{"ci": False, "difference": False, "strip": False}`.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure
        The mean of each batch and round with its interval on a logarithmic axis, the
        differences as `stats.differences` gives them, and the same means as colours in
        one range.

    Raises
    ------
    FrameError
        If there are not 2 to 8 batches, a frame lacks a column, or a layer is unknown.

    Notes
    -----
    How to read it: two healthy batches lie on each other above, and their differences
    on zero. A fault that a change brought in lifts one of them, in all rounds (a
    temperature, a precision, older weights) or from some round on (a context that one
    engine cuts). Believe a difference whose interval stays clear of zero. Where the
    batches are paired, samples are compared with themselves, which tells small faults
    from the choice of samples; the title says how many pairs there are. A hollow point
    stands on fewer than 10 samples. The strip has one range of colours for all.

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
    look, drawn = theme_of(theme), layers_of(layers, *_LAYERS)
    compared = _compared(named(batches), drawn, look)
    means = pd.concat(compared.summaries)
    title = "Mismatch per round, compared"
    if means.empty:
        return empty_figure(title, "no generated tokens, so no rounds", look)
    plot, domains = compared.domains()
    bottom = BOTTOM if drawn["strip"] else 52
    lines = explanation(compared, means)
    height = plot + TOP + bottom
    figure = new_figure(title, lines, look, height=height, bottom=bottom)
    values = means["mean"].to_numpy()
    axis, scale = LogAxis.around(means), LogScale.around(values)
    add_means(figure, compared, axis)
    if drawn["difference"]:
        add_differences(figure, compared)
    if drawn["strip"]:
        add_strip(figure, compared, scale)
        add_color_bar(figure, scale, values, _MEASURE.label)
    set_axes(figure, compared, axis, domains)
    return figure


def _compared(
    found: Mapping[str, Batch | pd.DataFrame], drawn: dict[str, bool], look: Theme
) -> Compared:
    """Summarise the batches and their differences; not too many for one figure."""
    if len(found) > _MOST:
        raise FrameError.build(
            key="batches",
            expected=f"2 to {_MOST} batches",
            found=str(len(found)),
            advice="Compare the ones that matter most.",
        )
    return Compared(
        names=[*found],
        summaries=[round_summary(data).sort_values("round") for data in found.values()],
        differences=differences(found),
        styles=batch_styles([*found], look),
        layers=drawn,
        look=look,
    )

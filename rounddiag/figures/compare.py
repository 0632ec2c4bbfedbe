"""Two or more batches beside each other, and how much more they differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from rounddiag.core.scores import pair_of
from rounddiag.errors import FrameError
from rounddiag.figures._parts.axes import mean_axis
from rounddiag.figures._parts.canvas import TOP, empty_figure, new_figure, theme_of
from rounddiag.figures._parts.compare_layers import (
    Compared,
    add_differences,
    add_means,
    add_strip,
    batch_lines,
    explanation,
    set_axes,
)
from rounddiag.figures._parts.data import layers_of, of_pair
from rounddiag.figures._parts.lines import MAX_LINES
from rounddiag.figures._parts.scales import BOTTOM
from rounddiag.schema import metric_name
from rounddiag.stats import round_summary
from rounddiag.stats.comparison import differences, named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures._parts.canvas import ThemeName
    from rounddiag.schema import Pair


LAYERS = ("ci", "difference", "strip")


def plot_compare(
    batches: Mapping[str, Batch | pd.DataFrame] | Sequence[Batch | pd.DataFrame],
    *,
    metric: str = "abs_diff",
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the mismatch per round of two or more batches, and their difference.

    Parameters
    ----------
    batches : mapping of str to Batch, or sequence of Batch
        Up to 8, the one that the others are compared with first; token frames will do.
    metric : str
        What is averaged, as in `round_summary`.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        What to leave out: `{"ci": False, "difference": False, "strip": False}`.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure
        The mean of each batch and round with its interval, on a logarithmic axis where
        it has no sign; the differences as `stats.differences` gives them; and the same
        means as colours in one range.

    Raises
    ------
    FrameError
        If there are not 2 to 8 batches of one pair of scores, a frame lacks a column,
        or a metric or layer is unknown.
    BatchError
        If a batch has no such score.

    Notes
    -----
    How to read it: two healthy batches lie on each other above, and their differences
    on zero. A fault that a change brought in lifts one of them, in all rounds (a
    temperature, a precision, older weights) or from some round on (a context that one
    engine cuts). Believe a difference whose interval stays clear of zero. Where the
    batches are paired, samples are compared with themselves, which tells small faults
    from the choice of samples; the title says how many pairs there are. A hollow point
    stands on fewer than 10 samples. The strip has one range of colours for all. A
    metric with a sign, `diff` say, has a linear axis: noise lies on both sides of zero,
    another temperature or other weights on one.

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
    look, drawn = theme_of(theme), layers_of(layers, *LAYERS)
    metric = metric_name(metric)
    found, pair = _of_pair(named(batches), a, b)
    compared = Compared(
        names=[*found],
        lines=batch_lines(_summaries(found, metric), look),
        differences=differences(found, metric=metric),
        metric=metric,
        pair=pair,
        layers=drawn,
        look=look,
    )
    means = pd.concat([line.rows for line in compared.lines])
    title = "Mismatch per round, compared"
    if means.empty:
        return empty_figure(title, "no generated tokens, so no rounds", look)
    plot, domains = compared.domains()
    bottom = BOTTOM if drawn["strip"] else 52
    axis = mean_axis(means, metric)
    lines = explanation(compared, means, axis)
    height = plot + TOP + bottom
    figure = new_figure(title, lines, look, height=height, bottom=bottom)
    add_means(figure, compared, axis)
    if drawn["difference"]:
        add_differences(figure, compared)
    if drawn["strip"]:
        add_strip(figure, compared)
    set_axes(figure, compared, axis, domains)
    return figure


def _of_pair(
    found: Mapping[str, Batch | pd.DataFrame], a: str, b: str
) -> tuple[dict[str, Batch | pd.DataFrame], Pair]:
    """Return the same batches of one pair of scores; not too many for one figure."""
    if len(found) > MAX_LINES:
        raise FrameError.build(
            key="batches",
            expected=f"2 to {MAX_LINES} batches",
            found=str(len(found)),
            advice="Compare the ones that matter most.",
        )
    both = {name: of_pair(data, a, b) for name, data in found.items()}
    pairs = dict.fromkeys(pair_of(data) for data, _ in both.values())
    if len(pairs) > 1:
        raise FrameError.build(
            key="batches",
            expected="batches of one pair of scores",
            found=" and ".join(f"{pair.a!r} - {pair.b!r}" for pair in pairs),
            advice="Choose `a` and `b` for all of them.",
        )
    _, pair = next(iter(both.values()))
    return {name: data for name, (data, _) in both.items()}, pair


def _summaries(
    found: Mapping[str, Batch | pd.DataFrame], metric: str
) -> dict[str, pd.DataFrame]:
    return {
        name: round_summary(data, metric=metric).sort_values("round")
        for name, data in found.items()
    }

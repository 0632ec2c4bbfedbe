"""Mismatch of every sample in every round, missing rounds set apart."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pandas as pd

from rounddiag.errors import FrameError, nearest
from rounddiag.figures._parts.canvas import TOP, empty_figure, new_figure, theme_of
from rounddiag.figures._parts.data import layers_of, of_pair, rounds_of
from rounddiag.figures._parts.heatmap_cells import (
    Heat,
    add_cells,
    add_dividers,
    explanation,
    grid_of,
    nothing,
    said_of,
    set_axes,
)
from rounddiag.figures._parts.marks import (
    ROOM,
    add_marginals,
    add_missing,
    add_undefined,
)
from rounddiag.figures._parts.scales import BOTTOM, add_color_bar
from rounddiag.schema import MEAN_COLUMNS, mean_column
from rounddiag.stats.cells import AGGREGATES, CELL_MEANS, aggregate_rounds
from rounddiag.stats.heatmap_rows import (
    HeatmapRows,
    Order,
    Pooling,
    order_rows,
    samples_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import plotly.graph_objects as go

    from rounddiag.batch import Batch
    from rounddiag.figures._parts.canvas import ThemeName
    from rounddiag.schema import Pair


_METRICS = (*AGGREGATES, *CELL_MEANS, *MEAN_COLUMNS)
_POOLINGS = ("max", "mean")


def check_options(
    metric: str, pooling: str, color_range: tuple[float, float] | None
) -> None:
    """Raise a FrameError for what a heatmap cannot show."""
    _check("metric", metric, _METRICS)
    _check("pooling", pooling, _POOLINGS)
    _check_range(color_range)


def _check(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise FrameError.build(
            key=key,
            expected=f"one of {list(known)}",
            found=repr(value),
            advice=nearest(value, known, "Leave it out for the default."),
        )


def _check_range(color_range: tuple[float, float] | None) -> None:
    match color_range:
        case None:
            return
        case (int() | float() as low, int() | float() as high) if 0 < low < high < inf:
            return
    raise FrameError.build(
        key="color_range",
        expected="two sizes above 0, the smaller one first",
        found=repr(color_range),
        advice="Leave it out for one that fits.",
    )


_ROW_HEIGHT, _MIN_ROWS, _MAX_ROWS = 12, 14, 46


def plot_heatmap(  # noqa: PLR0913 all but the first are keywords
    data: Batch | pd.DataFrame,
    *,
    order: Order | Sequence[int] = "sample",
    metric: str = "mean_abs_diff",
    color_range: tuple[float, float] | None = None,
    pooling: Pooling = "max",
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the mismatch of every sample in every round.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or its round frame with the columns sample, round, num_tokens,
        mean_abs_diff, max_abs_diff and the metric; `sample_id`, `group_id` and
        `reward` are used if it has them.
    order : {"sample", "worst", "rounds", "reward", "group"}
        Which samples come first: those of low numbers, of a large metric, of many
        rounds, of a high reward; or those of the same group together. Or a list of
        samples, and none but these; a frame need not have rows of all.
    metric : str
        What the colour shows: `mean_abs_diff` or `mean_diff`, which may be called
        `abs_diff` and `diff` as in `round_summary`; `max_abs_diff`, `k3`; or
        `prob_diff`, the mean |difference of probabilities|, or `beyond`, the share of
        tokens whose importance ratio is beyond 2, which a frame has if
        `rounddiag.stats.cell_frame` made it; or `difference`, from another batch, of a
        frame that `rounddiag.stats.paired_cells` made.
    color_range : tuple of float, optional
        The smallest and the largest size that colours tell apart, so that several
        heatmaps have the same; chosen to fit when left out.
    pooling : {"max", "mean"}
        What a row shows of its samples where they share rows, as more than 400 do, and
        fewer of more than 36 rounds: the largest value, so that none is hidden, or the
        mean over their tokens.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    layers : mapping, optional
        `{"marginals": False}` leaves out the strips: the metric of all samples above,
        rewards (or lengths, where there are no rewards) at the right.
    theme : {"light", "dark"}, optional
        The one set by `use_theme` when left out.

    Returns
    -------
    plotly.graph_objects.Figure
        `layout.meta` says which samples the rows are, from the top: `samples`, of
        which `pool` share a row.

    Raises
    ------
    FrameError
        If an option is unknown, the data lacks what it needs, or a frame has another
        pair.
    BatchError
        If the batch has no such score.

    Notes
    -----
    How to read it: a healthy batch is an even field, with no row or column that
    stands out. Columns that turn bright from some round on speak of the context (an
    image that one engine drops, say); single bright rows of one sample, a tokenizer
    or a template; bright bands of neighbouring rows, of a replica or a rank. The
    colour is logarithmic and its range is printed; arrows at its ends say that values
    lie beyond. A signed metric is blue where `a` likes the tokens more and orange where
    less: a field of one colour is an offset (a temperature applied by one engine
    only). Hatched: the sample has no such round. A cross: the round is there, without
    any finite value. Worst first, a wedge of bright rows says that few samples make
    the mean; if low rewards gather at one end, the mismatch goes with failure, or with
    length.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> figure = rd.plot_heatmap(batch, order="worst", metric="k3")
    >>> figure.layout.yaxis.title.text
    'sample, worst first'
    """
    metric = mean_column(metric)
    check_options(metric, pooling, color_range)
    look, drawn = theme_of(theme), layers_of(layers, "marginals")
    data, pair = of_pair(data, a, b)
    heat = _heat_of(
        data,
        metric=metric,
        order=order,
        pooling=pooling,
        pair=pair,
        color_range=color_range,
    )
    what = "Difference" if heat.is_difference else "Mismatch"
    title = f"{what} per sample and round"
    if heat.rounds.empty:
        return empty_figure(title, nothing(heat), look)
    height = _height(heat.rows.num) + ROOM * drawn["marginals"]
    figure = new_figure(title, explanation(heat), look, height=height, bottom=BOTTOM)
    add_cells(figure, heat)
    add_missing(figure, heat, look)
    add_undefined(figure, heat, look)
    add_dividers(figure, heat, look)
    if drawn["marginals"]:
        add_marginals(figure, heat, aggregate_rounds(heat.rounds, "round"), look)
    add_color_bar(figure, heat.scale, heat.shown, pair.label(heat.column))
    set_axes(figure, heat)
    return figure


def _heat_of(
    data: Batch | pd.DataFrame,
    *,
    metric: str,
    order: Order | Sequence[int],
    pooling: Pooling,
    pair: Pair,
    color_range: tuple[float, float] | None,
) -> Heat:
    rounds, num_samples = rounds_of(data, metric)
    if isinstance(data, pd.DataFrame) and not isinstance(order, str):
        num_samples = max([num_samples, *(sample + 1 for sample in order)])
    samples = samples_of(data, rounds, num_samples)
    rows = HeatmapRows(samples=order_rows(samples, order, metric))
    placed = rows.rounds(rounds, metric, pooling)
    said = said_of(placed, metric, is_pooled=rows.pool > 1)
    return Heat(
        rows=rows,
        rounds=rounds,
        grid=grid_of(placed, rows.num, "shown", *said),
        said=said,
        metric=metric,
        order=order if isinstance(order, str) else "given",
        pooling=pooling,
        pair=pair,
        color_range=color_range,
    )


def _height(num_rows: int) -> int:
    rows = _ROW_HEIGHT * min(max(num_rows, _MIN_ROWS), _MAX_ROWS)
    return rows + BOTTOM + TOP

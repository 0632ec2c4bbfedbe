"""The heatmap of samples and rounds, with the means of both at its margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.core.measured import Measured
from rounddiag.errors import FrameError, refuse, require_one_of
from rounddiag.figures._parts.canvas import Theme, ThemeName, cross, plot_height
from rounddiag.figures._parts.data import PlotInputs, prepare
from rounddiag.figures._parts.heatmap_cells import (
    Heat,
    add_cells,
    add_dividers,
    add_missing,
    add_undefined,
    build_grid,
    cells_height,
    choose_hover_columns,
    set_cell_axes,
)
from rounddiag.figures._parts.labels import (
    CROSS,
    estimate_width,
    subject,
)
from rounddiag.figures._parts.scales import BOTTOM, add_color_bar
from rounddiag.schema import (
    CELLS,
    IS_REWRITTEN,
    MEAN_COLUMNS,
    METRICS,
    NUM_TOKENS,
    ROUNDS,
    SAMPLE,
    SAMPLES,
    mean_column,
)
from rounddiag.stats import cell_frame
from rounddiag.stats.cells import EXTRA_COLUMNS, P95, aggregate_rounds
from rounddiag.stats.heatmap_rows import (
    HeatmapRows,
    Order,
    order_rows,
    samples_per_row,
    summarize_samples,
)
from rounddiag.stats.inputs import Data
from rounddiag.wording import pluralize

# What the colour can show: the names of metrics, and columns of cells.
_METRICS = (*METRICS, "max_abs_diff", *MEAN_COLUMNS.values())
# The columns of a round frame that the figure needs besides the metric.
_COLUMNS = ("num_tokens", "mean_abs_diff", "max_abs_diff")
_ORDERS = {
    "worst": ", worst first",
    "rounds": ", most rounds first",
    "reward": ", highest reward first",
    "group": ", by group",
}
_HATCHED = ("the sample has no such round", "no sample of the row has the round")
# Height of the strip above the cells with its label, and of its bars, in pixels.
_MARGINAL, _BARS = 64, 36
# Characters over the strip that a figure of 400 pixels has room for.
_HEAD = 50
# Bars of more rows have no gaps between them.
_MANY = 64
# Larger numbers are written without a fraction.
_WHOLE = 100
# Shares of the width.
_CELLS, _STRIP = (0.0, 0.82), (0.86, 1.0)
# Room for the right half of the last tick, up to "12,345", in pixels.
_RIGHT = 30


@refuse("pooling", "Rows that samples share show the largest value of each round.")
def plot_heatmap(
    data: Data,
    *,
    order: Order | Sequence[int | str] = "sample",
    metric: str = "abs_diff",
    color_range: tuple[float, float] | None = None,
    a: str = "old",
    b: str = "rollout",
    layers: Mapping[str, bool] | None = None,
    theme: ThemeName | None = None,
) -> go.Figure:
    """Plot the mismatch of every sample in every round.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or its round frame with the columns sample, round,
        num_tokens, mean_abs_diff, max_abs_diff and the metric; `sample_id`,
        `group_id`, `reward` and `is_rewritten` are used if it has them.
    order : {"sample", "worst", "rounds", "reward", "group"}
        Which samples come first: those of low numbers, of a large metric, of many
        rounds, of a high reward; or those of the same group together. Or a list of
        samples, by number or id, and none but these; a frame need not have rows of all.
    metric : str
        What the colour shows: any metric of `round_summary`, with its default options,
        such as `abs_diff`, `diff`, `k3`, `prob_diff` or `beyond`; or `max_abs_diff`. A
        frame has the metrics that `rounddiag.stats.cell_frame` gave it.
    color_range : tuple of float, optional
        The smallest and the largest magnitude that colours distinguish, to share
        between heatmaps; chosen to fit by default.
    layers : mapping, optional
        `{"marginals": False}` leaves out the strips: the metric of all samples above,
        rewards, or lengths if the batch has no rewards, at the right.
    a, b, theme : as everywhere, see `help(rounddiag)`

    Returns
    -------
    plotly.graph_objects.Figure
        `layout.meta` says which samples the rows are, from the top: `samples`, of
        which `pool` share a row.

    Notes
    -----
    How to read it: a healthy batch is uniform: no row or column stands out. Columns
    that turn bright from some round on point to the context (an image that one engine
    drops, for example); single bright rows of one sample, a tokenizer or a template;
    bright bands of neighbouring rows, of a replica or a rank. The colour is logarithmic
    and its range is printed; its ends say where values lie beyond. A signed
    metric is blue where tokens are more likely under `a` and orange where less: a field
    of one colour is an offset (a temperature applied by one engine only). Hatched: the
    sample has no such round. A cross: the round is there, without any finite value.
    Samples share rows above 400 of them, or fewer if there are more than 36 rounds; a
    row has the largest value of each round, so that no outlier is hidden.
    Worst first, a wedge of bright rows shows that a few samples dominate the mean; if
    low rewards gather at one end, the mismatch goes with failure, or with length.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> figure = rd.plot_heatmap(batch, order="worst", metric="k3")
    >>> figure.layout.yaxis.title.text
    'sample, worst first'
    """
    _check_options(metric, color_range)
    metric = mean_column(metric)
    inputs = prepare(data, a, b, layers=layers, known=("marginals",), theme=theme)
    heat = _build(inputs, metric=metric, order=order, color_range=color_range)
    title = f"{subject(metric)} per sample and round"
    if heat.rounds.empty:
        return inputs.empty_figure(title)
    has_marginals = inputs.layers["marginals"]
    plot = cells_height(heat.rows.num) + (_MARGINAL if has_marginals else 0)
    figure = inputs.new_figure(title, _explanation(heat), plot=plot, bottom=BOTTOM)
    add_cells(figure, heat, inputs.theme)
    add_missing(figure, heat, inputs.theme)
    add_undefined(figure, heat, inputs.theme)
    add_dividers(figure, heat, inputs.theme)
    if has_marginals:
        per_round = aggregate_rounds(heat.rounds, "round")
        _add_marginals(figure, heat, per_round, inputs.theme)
    label = inputs.pair.label(heat.column)
    add_color_bar(figure, heat.scale, heat.cell_values, label, inputs.theme)
    _set_axes(figure, heat)
    return figure


def _check_options(metric: str, color_range: tuple[float, float] | None) -> None:
    if metric == "difference":
        raise FrameError.build(
            key="metric",
            expected="a metric of one batch",
            found="'difference', which 0.3.0 removed",
            advice="Use `rounddiag.plot_compare([before, after])`.",
        )
    advice = "Leave it out for the default."
    require_one_of(metric, _METRICS, key="metric", advice=advice)
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


def _build(
    inputs: PlotInputs,
    *,
    metric: str,
    order: Order | Sequence[int | str],
    color_range: tuple[float, float] | None,
) -> Heat:
    data = inputs.data
    rounds, num_samples = _get_rounds(data, metric)
    if data.batch is None and not isinstance(order, str):
        numbers = [name + 1 for name in order if not isinstance(name, str)]
        num_samples = max([num_samples, *numbers])
    samples = summarize_samples(data.batch, rounds, num_samples)
    rows = HeatmapRows(samples=order_rows(samples, order, metric))
    placed = rows.rounds(rounds, metric)
    more = choose_hover_columns(placed, metric, is_pooled=rows.pool > 1)
    return Heat(
        rows=rows,
        rounds=rounds,
        grid=build_grid(placed, rows.num, "shown", *more, *_marks(placed)),
        hover_columns=more,
        metric=metric,
        order=order if isinstance(order, str) else "custom",
        pair=inputs.pair,
        color_range=color_range,
    )


def _marks(placed: pd.DataFrame) -> list[str]:
    """Return the column of rewritten contexts, where it is one and there are any."""
    name = IS_REWRITTEN.name
    if name not in placed:
        return []
    values = placed[name].to_numpy()
    return [name] if values.dtype.kind in "bi" and values.any() else []


def _get_rounds(data: Measured, metric: str) -> tuple[pd.DataFrame, int]:
    """Return the rounds of a heatmap, and how many samples there are.

    A frame may lack `p95_abs_diff`; for a batch it is computed only where each sample
    has a row of its own.
    """
    of = METRICS[metric].of if metric in METRICS else "pair"
    needed = _COLUMNS if of == "pair" else _COLUMNS[:1]
    if data.frame is not None:
        table = CELLS if metric in EXTRA_COLUMNS else ROUNDS
        table.require(data.frame.columns, *ROUNDS.keys, *needed, metric)
        return data.frame, data.num_samples
    num_rounds = int(data.rounds["round"].max()) + 1 if len(data.rounds) else 0
    is_alone = samples_per_row(data.num_samples, num_rounds) == 1
    more = [metric] if metric in EXTRA_COLUMNS else []
    if of == "pair":
        data.require_batch().both_log_probs()  # raises without
        more += [P95] if is_alone else []
    return cell_frame(data, more), data.num_samples


def _set_axes(figure: go.Figure, heat: Heat) -> None:
    num_samples, num_rounds = len(heat.rows.samples), heat.grid.has_round.shape[1]
    numbers = np.arange(num_samples) if heat.is_pooled else heat.numbers
    middles = heat.y(np.arange(heat.rows.num))
    names = dict(zip(middles.tolist(), heat.names(), strict=True))
    set_cell_axes(figure, num_rounds, numbers, names, _row_title(heat))
    samples = heat.rows.samples["sample"].tolist()
    figure.layout.meta = {"samples": samples, "pool": heat.rows.pool}


def _row_title(heat: Heat) -> str:
    """Name the rows and their order; pools are counted in samples."""
    order = _ORDERS.get(heat.order, "")
    ranked = "rank of " if heat.is_pooled and order else ""
    return f"{ranked}{SAMPLE.label}{order}"


def _explanation(heat: Heat) -> list[str]:
    lines = []
    if heat.is_pooled:
        num = pluralize(len(heat.rows.samples), "sample")
        lines.append(f"{num}: each row is {heat.rows.pool} neighbours,")
        lines.append("its color is their largest value")
    if not heat.grid.has_round.all():
        lines.append(f"▨ {_HATCHED[heat.is_pooled]}")
    zeros = int((heat.cell_values == 0).sum())
    if zeros:
        where = "in the middle" if heat.scale.low < 0 else "at the low end"
        lines.append(f"{pluralize(zeros, 'cell')} exactly 0, shown {where}")
    undefined = int(heat.grid.find_undefined("shown").sum())
    if undefined:
        lines.append(f"{CROSS} {pluralize(undefined, 'cell')} without a finite value")
    return lines


def _add_marginals(
    figure: go.Figure, heat: Heat, per_round: pd.DataFrame, theme: Theme
) -> None:
    """Add both strips to a figure whose plot is `_MARGINAL` higher than its cells."""
    figure.layout.margin.r = _RIGHT
    plot = plot_height(figure)
    figure.update_layout(
        xaxis={"domain": _CELLS},
        xaxis2={"domain": _STRIP, "anchor": "y"},
        yaxis={"domain": [0, 1 - _MARGINAL / plot]},
        yaxis2={"domain": [1 - _BARS / plot, 1], "anchor": "x"},
    )
    _add_rounds(figure, heat, per_round, theme)
    _add_samples(figure, heat, theme)


def _add_rounds(
    figure: go.Figure, heat: Heat, per_round: pd.DataFrame, theme: Theme
) -> None:
    meaning = heat.pair.fill(heat.column.meaning)
    head = f"{heat.pair.label(heat.column)}, all samples"
    values = per_round[heat.metric].to_numpy()
    colors = np.where(values > 0, theme.more, theme.less)
    figure.add_bar(
        x=per_round["round"].to_numpy(),
        y=values,
        yaxis="y2",
        width=0.7,
        marker={"color": colors if heat.is_signed else theme.quiet},
        customdata=per_round[["num_rows", "num_tokens"]].to_numpy(),
        hovertemplate="<b>round %{x}, all samples</b><br>"
        f"{meaning} %{{y:.3g}}<br>"
        "%{customdata[0]:,} samples, %{customdata[1]:,} "
        f"{heat.pair.token}s<extra></extra>",
    )
    figure.update_layout(yaxis2=_ends(values))
    figure.add_annotation(
        text=head if estimate_width(head) <= _HEAD else meaning,
        x=0,
        y=1,
        xref="paper",
        yref="paper",
        xanchor="left",
        yanchor="bottom",
        yshift=2,  # clear of the line at zero, which is on top of negative bars
        showarrow=False,
        font={"color": theme.muted},
    )


def _add_samples(figure: go.Figure, heat: Heat, theme: Theme) -> None:
    samples = heat.rows.samples
    has_rewards = "reward" in samples and samples["reward"].notna().any()
    column = SAMPLES["reward"] if has_rewards else NUM_TOKENS
    values = heat.rows.means(column.name)
    y = heat.y(np.arange(heat.rows.num))
    mean = "mean " if heat.is_pooled else ""
    meaning = heat.pair.fill(column.meaning)
    # The name of a row tells its reward.
    length = "" if has_rewards else f"<br>{mean}{meaning} %{{x:,.3~g}}"
    figure.add_bar(
        x=values,
        y=y,
        xaxis="x2",
        orientation="h",
        width=heat.rows.pool * (0.8 if len(values) <= _MANY else 1),
        marker={"color": theme.quiet, "line": {"width": 0}},
        hovertemplate=f"<b>%{{y}}</b>{length}<extra></extra>",
    )
    unknown = np.isnan(values)
    figure.add_scatter(
        x=np.zeros(unknown.sum()),
        y=y[unknown],
        xaxis="x2",
        mode="markers",
        marker=cross(theme),
        hovertemplate=f"<b>%{{y}}</b><br>no {meaning}<extra></extra>",
    )
    figure.update_layout(xaxis2=_ends(values))
    # The last word is what the strip has room for.
    figure.layout.xaxis2.title.text = meaning.split()[-1]


def _ends(values: Array) -> dict[str, object]:
    """Mark only zero and the end farther from it."""
    known = values[np.isfinite(values)]
    low, high = float(known.min(initial=0)), float(known.max(initial=0))
    ends = [low, high] if high > low else [0.0, 1.0]
    farthest = max(ends, key=abs)
    return {
        "range": ends,
        "tickvals": [0, farthest],
        "ticktext": [
            "0",
            f"{farthest:,.2g}" if abs(farthest) < _WHOLE else f"{farthest:,.0f}",
        ],
        "zeroline": low < 0,
    }

"""The cells of a heatmap: values, missing rounds, crosses, and names of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.figures._parts.canvas import Theme, cross
from rounddiag.figures._parts.labels import format_number, shorten_name, tick_step
from rounddiag.figures._parts.scales import (
    ColorScale,
    choose_scale,
    make_scale,
    without_extremes,
)
from rounddiag.schema import (
    CELLS,
    IS_REWRITTEN,
    METRICS,
    ROUND,
    ColumnSchema,
    Pair,
)
from rounddiag.stats.heatmap_rows import HeatmapRows

# Height of a row in pixels, and the number of rows that a figure has room for.
_ROW_HEIGHT, _MIN_ROWS, _MAX_ROWS = 12, 14, 46


def cells_height(num_rows: int) -> int:
    """Return the height of the cells, in pixels."""
    return _ROW_HEIGHT * min(max(num_rows, _MIN_ROWS), _MAX_ROWS)


def set_cell_axes(
    figure: go.Figure,
    num_rounds: int,
    numbers: Array,
    names: Mapping[float, str],
    title: str,
) -> None:
    """Set the axes of cells, whose rows are named once: in full on hover.

    `numbers` are those of the samples at ticks, and `names` are by the middle of each
    row. Plotly looks up the text that it would write; the two differ in their format.
    """
    step = tick_step(len(numbers))
    short = {f"{at}": f"{numbers[at]:,}" for at in range(0, len(numbers), step)}
    full = {f"{at:.1f}": name for at, name in names.items()}
    figure.update_layout(
        xaxis={
            "title": {"text": ROUND.label},
            "range": [-0.5, num_rounds - 0.5],
            "dtick": tick_step(num_rounds),
        },
        yaxis={
            "title": {"text": title},
            "range": [len(numbers) - 0.5, -0.5],
            "dtick": step,
            "showgrid": False,
            "tickformat": "d",
            "hoverformat": ".1f",
            "labelalias": short | full,
        },
    )


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Matrices with a row per sample, or pool of samples, and a column per round.

    Attributes
    ----------
    has_round: Whether a sample of the row has the round.
    num_tokens, num_rows: The tokens and the samples of the cell.
    columns: dict of str to array of float32. NaN where the round is missing, or has no
        finite value.
    """

    has_round: Array
    num_tokens: Array
    num_rows: Array
    columns: dict[str, Array]

    def find_undefined(self, column: str) -> Array:
        """Mark the cells whose round exists, but without a finite value."""
        return self.has_round & np.isnan(self.columns[column])


def build_grid(rounds: pd.DataFrame, num_rows: int, *columns: str) -> Grid:
    """Spread `HeatmapRows.rounds`, which has the keys `row` and `round`."""
    row, round_ = rounds["row"].to_numpy(), rounds["round"].to_numpy()
    shape = (num_rows, int(round_.max()) + 1 if len(rounds) else 0)
    has_round = np.zeros(shape, dtype=bool)
    has_round[row, round_] = True
    counts = {}
    for name in ("num_tokens", "num_rows"):
        # The narrowest type: a figure of 512 samples and 60 rounds stays under 500 kB.
        highest = int(rounds[name].max()) if len(rounds) else 0
        counts[name] = np.zeros(shape, dtype=np.min_scalar_type(highest))
        counts[name][row, round_] = rounds[name]
    spread = {name: np.full(shape, np.nan, dtype=np.float32) for name in columns}
    for name, cells in spread.items():
        cells[row, round_] = rounds[name]
    return Grid(has_round=has_round, columns=spread, **counts)


_SIGNED = [m.mean_column.name for m in METRICS.values() if m.is_signed]
# Of one engine or of rounds: some outliers would leave the others one colour.
_WITHOUT_RANGE = [
    metric.mean_column.name for metric in METRICS.values() if metric.color_range is None
]


@dataclass(frozen=True, kw_only=True)
class Heat:
    """The cells of a heatmap, and their rows.

    Attributes
    ----------
    rounds: A row for each sample and round.
    grid: Its column `shown` gives the colour.
    hover_columns: Its other columns, for the hover text.
    metric, order: The options of the figure.
    pair: The scores, as labels name them.
    color_range: The smallest and the largest magnitude that colours distinguish.
    """

    rows: HeatmapRows
    rounds: pd.DataFrame
    grid: Grid
    hover_columns: Sequence[str]
    metric: str
    order: str
    pair: Pair
    color_range: tuple[float, float] | None

    @property
    def cell_values(self) -> Array:
        """The values that the colour shows."""
        return self.grid.columns["shown"]

    @property
    def is_pooled(self) -> bool:
        """Whether a row stands for several samples."""
        return self.rows.pool > 1

    @property
    def scale(self) -> ColorScale:
        """The range of colours: for signed values around zero."""
        if self.color_range is not None:
            return make_scale(*self.color_range, is_signed=self.is_signed)
        values = self.cell_values
        if self.metric in _WITHOUT_RANGE:
            values = without_extremes(values)
        return choose_scale(values, is_signed=self.is_signed)

    @property
    def is_signed(self) -> bool:
        """Whether what the colour shows can be below zero."""
        return self.metric in _SIGNED

    @property
    def column(self) -> ColumnSchema:
        """The column that the colour shows."""
        return CELLS[self.metric]

    @property
    def hover_head(self) -> tuple[str, str]:
        """The first lines of a hover text, in plotly's syntax; the axis names rows."""
        return "<b>%{y}<br>round %{x}</b>", f"{self.pair.token}s %{{text}}"

    @property
    def numbers(self) -> Array:
        """The sample of each row, or the rank of the first one of its pool."""
        if self.is_pooled:
            return np.arange(self.rows.num) * self.rows.pool
        return self.rows.samples["sample"].to_numpy()

    def y(self, row: Array) -> Array:
        """Return the middle of rows on the axis, whose unit is one sample.

        Half-integers give the edges of rows.
        """
        return (row + 0.5) * self.rows.pool - 0.5

    def names(self) -> list[str]:
        """Name each row by its number, and the sample's id and reward if known."""
        if not self.is_pooled:
            return [name_row(row) for row in self.rows.samples.to_dict("records")]
        rank = "" if self.order == "sample" else " rank"
        names = [f"{self.rows.pool} samples from{rank} {at}" for at in self.numbers]
        if "reward" not in self.rows.samples:
            return names
        means = zip(names, self.rows.means("reward"), strict=True)
        return [f"{name} · mean reward {format_number(mean)}" for name, mean in means]


def name_row(row: Mapping[Any, Any]) -> str:
    """Name a row of one sample by its number, and its id and reward if known."""
    parts = [f"sample {row['sample']}"]
    if not pd.isna(row.get("sample_id")):
        parts.append(shorten_name(str(row["sample_id"])))
    if "reward" in row:
        parts.append(f"reward {format_number(row['reward'])}")
    return " · ".join(parts)


# Columns of every hover text, whatever the colour shows.
_HOVER_COLUMNS = ("mean_abs_diff", "p95_abs_diff", "max_abs_diff")
_REWRITTEN = "↻ context rewritten"
# Up to this many rows have thin lines between cells.
FEW_ROWS = 64


def choose_hover_columns(
    placed: pd.DataFrame, metric: str, *, is_pooled: bool
) -> list[str]:
    """Choose the columns of a hover text that exist, each once."""
    own = None if is_pooled else metric
    return [name for name in _HOVER_COLUMNS if name in placed and name != own]


def add_cells(figure: go.Figure, heat: Heat, theme: Theme) -> None:
    """Draw a cell for each row and round."""
    gap = 1 if heat.rows.num <= FEW_ROWS else 0
    scale = heat.scale
    shape = (*heat.cell_values.shape, len(heat.hover_columns))
    values = np.empty(shape, dtype=np.float32)
    for index, name in enumerate(heat.hover_columns):
        values[..., index] = heat.grid.columns[name]
    figure.add_heatmap(
        z=heat.cell_values,
        y0=heat.y(np.zeros(1)).item(),
        dy=heat.rows.pool,
        text=heat.grid.num_tokens,
        hovertext=_cell_texts(heat),
        customdata=np.nan_to_num(values),  # zeros are shorter, and cells in gaps silent
        hovertemplate="<br>".join([*heat.hover_head, *_hover_lines(heat)])
        + "<extra></extra>",
        hoverongaps=False,
        zmin=scale.low,
        zmax=scale.high,
        colorscale=scale.linear_colors(theme),
        showscale=False,
        xgap=gap,
        ygap=gap,
    )


def _cell_texts(heat: Heat) -> Array | None:
    """Return what stands before a hover's values: rewritten contexts, and samples."""
    num_rows = heat.grid.num_rows if heat.is_pooled else None
    rewritten = heat.grid.columns.get(IS_REWRITTEN.name)
    if rewritten is None:
        return num_rows
    if num_rows is None:
        return np.where(rewritten > 0, f"{_REWRITTEN}<br>", "").astype(object)
    counts = np.nan_to_num(rewritten).astype(int).astype(str).astype(object)
    marks = np.where(rewritten > 0, f"{_REWRITTEN} in " + counts + "<br>", "")
    return marks + num_rows.astype(str).astype(object)


def add_dividers(figure: go.Figure, heat: Heat, theme: Theme) -> None:
    """Draw a line between neighbouring groups, if rows are high enough."""
    if heat.order != "group" or heat.rows.num > FEW_ROWS:
        return
    group = heat.rows.samples["group_id"].to_numpy()
    changes = np.flatnonzero(group[1:] != group[:-1]) + 0.5
    last = heat.cell_values.shape[1] - 0.5
    figure.add_scatter(
        x=np.tile([-0.5, last, np.nan], len(changes)),
        y=np.repeat(changes, 3),
        mode="lines",
        line={"width": 1, "color": theme.text},
        hoverinfo="skip",
    )


def _hover_lines(heat: Heat) -> Iterator[str]:
    if heat.is_pooled:
        yield f"%{{hovertext}} of {heat.rows.pool} samples reach the round"
    which = "largest " if heat.is_pooled else ""
    if not heat.is_pooled and IS_REWRITTEN.name in heat.grid.columns:
        which = "%{hovertext}"
    yield f"{which}{heat.pair.fill(heat.column.meaning)} %{{z:.3~g}}"
    for index, name in enumerate(heat.hover_columns):
        meaning = heat.pair.fill(CELLS[name].meaning)
        yield f"{meaning} %{{customdata[{index}]:.3~g}}"


def add_missing(figure: go.Figure, heat: Heat, theme: Theme) -> None:
    """Hatch every run of missing rounds; neighbours with the same run are one area."""
    x, y = trace_outlines(~heat.grid.has_round)
    add_hatching(figure, x, heat.y(np.array(y, dtype=np.float32)), theme)


def add_hatching(
    figure: go.Figure,
    x: Sequence[Any],
    y: Sequence[Any] | Array,
    theme: Theme,
    **axes: str,
) -> None:
    """Hatch areas; None or NaN separates their paths."""
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillpattern={
            "shape": "/",
            "size": 7,
            "solidity": 0.15,
            "fgcolor": theme.quiet,
            "bgcolor": theme.paper,
        },
        hoverinfo="skip",
        **axes,
    )


def add_undefined(figure: go.Figure, heat: Heat, theme: Theme) -> None:
    """Put a cross on every cell whose round has no finite value."""
    rows, columns = np.nonzero(heat.grid.find_undefined("shown"))
    figure.add_scatter(
        x=columns,
        y=heat.y(rows),
        mode="markers",
        marker=cross(theme),
        text=heat.grid.num_tokens[rows, columns],
        hovertemplate="<br>".join([*heat.hover_head, "none finite"])
        + "<extra></extra>",
    )


def trace_outlines(cells: Array) -> tuple[list[float | None], list[float | None]]:
    """Return closed paths, separated by None, around runs of marked cells in a row.

    Neighbouring rows with the same runs share a rectangle. A cell reaches half a unit
    around its indices.

    Examples
    --------
    >>> trace_outlines(np.array([[False, True], [False, True]]))
    ([0.5, 1.5, 1.5, 0.5, 0.5, None], [-0.5, -0.5, 1.5, 1.5, -0.5, None])
    """
    x: list[float | None] = []
    y: list[float | None] = []
    for top, bottom in _equal_rows(cells):
        padded = np.pad(cells[top].astype(np.int8), 1)
        for left, right in np.flatnonzero(np.diff(padded)).reshape(-1, 2) - 0.5:
            start, stop = float(left), float(right)
            x += [start, stop, stop, start, start, None]
            y += [top - 0.5, top - 0.5, bottom - 0.5, bottom - 0.5, top - 0.5, None]
    return x, y


def _equal_rows(cells: Array) -> list[tuple[int, int]]:
    """Divide the rows into stretches of equal rows, as (start, stop)."""
    changes = np.flatnonzero((cells[1:] != cells[:-1]).any(axis=1)) + 1
    starts = [0, *changes.tolist()] if len(cells) else []
    return list(zip(starts, [*starts[1:], len(cells)], strict=True))

"""What a heatmap draws, and what it calls its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.figures._parts.labels import CROSS, number, short_name, tick_step
from rounddiag.figures._parts.scales import LogScale, scale_between, scale_of
from rounddiag.schema import CELLS, DIFFERENCE, METRICS, PAIRED_CELLS, ROUND, SAMPLE
from rounddiag.stats.pairing import METRIC
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import plotly.graph_objects as go

    from rounddiag._typing import Array
    from rounddiag.figures._parts.canvas import Theme
    from rounddiag.figures._parts.scales import Scale
    from rounddiag.schema import Column, Pair
    from rounddiag.stats.heatmap_rows import HeatmapRows, Pooling


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Matrices with a row per sample, or pool of them, and a column per round.

    Attributes
    ----------
    there : array of bool
        Whether a sample of the row has the round.
    num_tokens, num_rows : array of unsigned int
        What the cell is made of: its tokens, and its samples.
    columns : dict of str to array of float32
        NaN where the round is missing, or has no finite value.
    """

    there: Array
    num_tokens: Array
    num_rows: Array
    columns: dict[str, Array]

    def undefined(self, column: str) -> Array:
        """Mark the cells whose round is there, but without a finite value."""
        marked: Array = self.there & np.isnan(self.columns[column])
        return marked


def grid_of(rounds: pd.DataFrame, num_rows: int, *columns: str) -> Grid:
    """Spread a frame with the keys `row` and `round`, as `Rows.rounds` gives it."""
    row, round_ = rounds["row"].to_numpy(), rounds["round"].to_numpy()
    shape = (num_rows, int(round_.max()) + 1 if len(rounds) else 0)
    there = np.zeros(shape, dtype=bool)
    there[row, round_] = True
    counts = {}
    for name in ("num_tokens", "num_rows"):
        # The narrowest type: a figure of 512 samples and 60 rounds stays under 500 kB.
        most = int(rounds[name].max()) if len(rounds) else 0
        counts[name] = np.zeros(shape, dtype=np.min_scalar_type(most))
        counts[name][row, round_] = rounds[name]
    spread = {name: np.full(shape, np.nan, dtype=np.float32) for name in columns}
    for name, cells in spread.items():
        cells[row, round_] = rounds[name]
    return Grid(there=there, columns=spread, **counts)


_SIGNED = (
    *(m.mean_column.name for m in METRICS.values() if m.is_signed),
    DIFFERENCE.name,
)


@dataclass(frozen=True, kw_only=True)
class Heat:
    """The cells of a heatmap, and the rows that they stand in.

    Attributes
    ----------
    rows : Rows
    rounds : DataFrame
        A row for each sample and round.
    grid : Grid
        Its column `shown` is what the colour shows.
    said : sequence of str
        Its other columns, which a cell says on hover.
    metric, order, pooling : str
        What was asked for.
    pair : Pair
        The scores, as labels name them.
    color_range : tuple of float, optional
        The smallest and the largest size that colours tell apart.
    """

    rows: HeatmapRows
    rounds: pd.DataFrame
    grid: Grid
    said: Sequence[str]
    metric: str
    order: str
    pooling: Pooling
    pair: Pair
    color_range: tuple[float, float] | None

    @property
    def shown(self) -> Array:
        """What the colour shows."""
        return self.grid.columns["shown"]

    @property
    def is_pooled(self) -> bool:
        """Whether a row is more than one sample."""
        return self.rows.pool > 1

    @property
    def scale(self) -> Scale:
        """The range of colours: for signed values around zero."""
        if self.color_range is None:
            return scale_of(self.shown, is_signed=self.is_signed)
        return scale_between(*self.color_range, is_signed=self.is_signed)

    @property
    def is_signed(self) -> bool:
        """Whether what the colour shows can be below zero."""
        return self.metric in _SIGNED

    @property
    def is_difference(self) -> bool:
        """Whether it is how much more there is than in another batch."""
        return self.metric == DIFFERENCE.name

    @property
    def column(self) -> Column:
        """What the colour shows; of a difference, with what it is of."""
        if not self.is_difference:
            return CELLS[self.metric]
        told = self.rounds.attrs.get(METRIC)
        for column in CELLS.columns:
            if column.name == told:
                meaning = f"difference of {column.meaning}"
                return replace(column, name=self.metric, meaning=meaning)
        return DIFFERENCE

    @property
    def hover(self) -> tuple[str, str]:
        """What any cell says first, in plotly's words; the axis names its row."""
        return "<b>%{y}<br>round %{x}</b>", "tokens %{text}"

    @property
    def numbers(self) -> Array:
        """The sample of each row, or where its first one stands."""
        if self.is_pooled:
            return np.arange(self.rows.num) * self.rows.pool
        return self.rows.samples["sample"].to_numpy()

    def y(self, row: Array) -> Array:
        """Give the middle of rows on the axis, whose unit is one sample.

        Takes whole rows, or halves, which are their edges.
        """
        return (row + 0.5) * self.rows.pool - 0.5

    def names(self) -> list[str]:
        """Name each row: its number, the sample's id and reward if they are known."""
        if not self.is_pooled:
            return [_name(row) for row in self.rows.samples.to_dict("records")]
        rank = "" if self.order == "sample" else " rank"
        names = [f"{self.rows.pool} samples from{rank} {at}" for at in self.numbers]
        if "reward" not in self.rows.samples:
            return names
        means = zip(names, self.rows.means("reward"), strict=True)
        return [f"{name} · mean reward {number(mean)}" for name, mean in means]


def range_of(values: Array, metric: str) -> tuple[float, float]:
    """Return the range of colours that several heatmaps can share.

    Parameters
    ----------
    values : ndarray of float
        What all of them show.
    metric : str

    Examples
    --------
    >>> range_of(np.array([0.003, -0.04]), "mean_diff")
    (0.002, 0.05)
    """
    scale = scale_of(values, is_signed=metric in _SIGNED)
    size = scale if isinstance(scale, LogScale) else scale.size
    return size.low, size.high


def _name(row: Mapping[Any, Any]) -> str:
    parts = [f"sample {row['sample']}"]
    if not pd.isna(row.get("sample_id")):
        parts.append(short_name(str(row["sample_id"])))
    if "reward" in row:
        parts.append(f"reward {number(row['reward'])}")
    return " · ".join(parts)


# What a cell says on hover of its tokens, whatever its colour shows.
_SAID = ("baseline_mean", "mean_abs_diff", "p95_abs_diff", "max_abs_diff")
# Up to this many rows the cells are divided by thin lines.
_FEW_ROWS = 64


def said_of(placed: pd.DataFrame, metric: str, *, is_pooled: bool) -> list[str]:
    """Name what a cell says besides its colour: what is known, and nothing twice."""
    own = None if is_pooled else metric
    return [name for name in _SAID if name in placed and name != own]


def add_cells(figure: go.Figure, heat: Heat) -> None:
    """Draw a cell for each row and round."""
    gap = 1 if heat.rows.num <= _FEW_ROWS else 0
    scale = heat.scale
    values = np.stack([heat.grid.columns[name] for name in heat.said], axis=-1)
    figure.add_heatmap(
        z=heat.shown,
        y0=heat.y(np.zeros(1)).item(),
        dy=heat.rows.pool,
        text=heat.grid.num_tokens,
        hovertext=heat.grid.num_rows if heat.is_pooled else None,
        customdata=np.nan_to_num(values),  # zeros are shorter, and cells in gaps silent
        hovertemplate="<br>".join([*heat.hover, *_lines(heat)]) + "<extra></extra>",
        hoverongaps=False,
        zmin=scale.low,
        zmax=scale.high,
        colorscale=scale.linear_colors(),
        showscale=False,
        xgap=gap,
        ygap=gap,
    )


def add_dividers(figure: go.Figure, heat: Heat, look: Theme) -> None:
    """Draw a line between groups that stand one under the other, if each is seen."""
    if heat.order != "group" or heat.rows.num > _FEW_ROWS:
        return
    group = heat.rows.samples["group_id"].to_numpy()
    changes = np.flatnonzero(group[1:] != group[:-1]) + 0.5
    last = heat.shown.shape[1] - 0.5
    figure.add_scatter(
        x=np.tile([-0.5, last, np.nan], len(changes)),
        y=np.repeat(changes, 3),
        mode="lines",
        line={"width": 1, "color": look.text},
        hoverinfo="skip",
    )


def _lines(heat: Heat) -> Iterator[str]:
    if heat.is_pooled:
        yield f"%{{hovertext}} of {heat.rows.pool} samples reach the round"
    which = "largest " if heat.is_pooled and heat.pooling == "max" else ""
    yield f"{which}{heat.pair.named(heat.column.meaning)} %{{z:.3g}}"
    for place, name in enumerate(heat.said):
        meaning = heat.pair.named(PAIRED_CELLS[name].meaning)
        yield f"{meaning} %{{customdata[{place}]:.3g}}"


_ORDERS = {
    "worst": ", worst first",
    "rounds": ", most rounds first",
    "reward": ", highest reward first",
    "group": ", by group",
}


def set_axes(figure: go.Figure, heat: Heat) -> None:
    """Name the axes, mark as many rows as have room, and list the samples of all."""
    num_samples, num_rounds = len(heat.rows.samples), heat.grid.there.shape[1]
    step = tick_step(num_samples)
    figure.update_layout(
        xaxis={
            "title": {"text": ROUND.label},
            "range": [-0.5, num_rounds - 0.5],
            "dtick": tick_step(num_rounds),
        },
        yaxis={
            "title": {"text": _row_title(heat)},
            "range": [num_samples - 0.5, -0.5],
            "dtick": step,
            "showgrid": False,
            **_row_names(heat, np.arange(0, num_samples, step)),
        },
    )
    shown = heat.rows.samples["sample"].tolist()
    figure.layout.meta = {"samples": shown, "pool": heat.rows.pool}


def _row_names(heat: Heat, ticks: Array) -> dict[str, Any]:
    """Name rows once for all cells: in full on hover, by their number at ticks.

    Plotly looks up what it would write, which differs by its format.
    """
    labels = ticks if heat.is_pooled else heat.numbers[ticks]
    short = {f"{tick}": f"{label:,}" for tick, label in zip(ticks, labels, strict=True)}
    y = heat.y(np.arange(heat.rows.num))
    names = {f"{at:.1f}": name for at, name in zip(y, heat.names(), strict=True)}
    return {"tickformat": "d", "hoverformat": ".1f", "labelalias": short | names}


def _row_title(heat: Heat) -> str:
    """Name what the rows are; pools are counted in samples."""
    place = _ORDERS.get(heat.order, "")
    ranked = "rank of " if heat.is_pooled and place else ""
    return f"{ranked}{SAMPLE.label}{place}"


_POOLED = {
    "max": "its color is the largest value of theirs",
    "mean": "its color is the mean over their tokens",
}

_HATCHED = ("the sample has no such round", "no sample of the row has the round")


def explanation(heat: Heat) -> list[str]:
    """Explain the marks and what a row stands for, a line each."""
    lines = []
    if heat.is_pooled:
        num = pluralize(len(heat.rows.samples), "sample")
        lines.append(f"{num}: each row is {heat.rows.pool} neighbours,")
        lines.append(_POOLED[heat.pooling])
    if heat.is_difference:
        lines.append("blue: more than in the first batch, orange: less")
    if not heat.grid.there.all():
        missing = "not in both" if heat.is_difference else _HATCHED[heat.is_pooled]
        lines.append(f"▨ {missing}")
    zeros = int((heat.shown == 0).sum())
    if zeros:
        where = "in the middle" if heat.scale.low < 0 else "at the low end"
        lines.append(f"{pluralize(zeros, 'cell')} exactly 0, shown {where}")
    undefined = int(heat.grid.undefined("shown").sum())
    if undefined:
        lines.append(f"{CROSS} {pluralize(undefined, 'cell')} without a finite value")
    return lines


def nothing(heat: Heat) -> str:
    """Say why there are no cells."""
    if heat.is_difference:
        return "no round of a sample in both batches"
    return "no generated tokens, so no rounds"

"""Clouds of points: their density as an image, with the outliers on top.

Each cloud has a panel, such as the first round and later rounds; all share their axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from rounddiag._typing import Array
from rounddiag.figures._parts.canvas import AXIS_ROOM, Theme, new_figure
from rounddiag.figures._parts.labels import (
    CROSS,
    NO_TOKENS,
    format_number,
    shorten_value,
)
from rounddiag.figures._parts.lines import check_num_lines
from rounddiag.figures._parts.scales import BOTTOM, LogScale, add_color_bar
from rounddiag.stats.agreement import Bins
from rounddiag.wording import pluralize

# The parts of the width that the panels of a row take: one alone, or two.
_ALONE, _BESIDE = ((0.0, 1.0),), ((0.0, 0.455), (0.545, 1.0))
# Height of a panel, in pixels: of a single row, and of each of several.
_HEIGHT, _HEIGHT_OF_MANY = 340, 240
# Bins that both axes of a panel are divided into: as many as are large enough to see.
NUM_BINS = 60
# Lines of a head, in a size of which 25 characters fit half a figure of 400 pixels.
_HEAD_SIZE, _HEAD_LINE = 11, 15
# Headings keep clear of points at the upper edge, and of the ticks of the row above.
_HEAD_ABOVE, _TICKS = 5, 26
# The title that the x axes share begins this far under the plot.
_TITLE_BELOW = 26

# The names of a panel's axes, as a trace has them.
AxisIds: TypeAlias = "dict[str, str]"


@dataclass(frozen=True, kw_only=True)
class Panels:
    """Panels, in rows of two.

    Attributes
    ----------
    names: Safe in plotly's pseudo HTML.
    heads: Lines over each panel, under its name.
    whys: The text in each panel that has nothing to show.
    """

    names: Sequence[str]
    heads: Sequence[Sequence[str]]
    whys: Sequence[str]

    @property
    def height(self) -> int:
        """The height of all rows with their headings and gaps, in pixels."""
        return self.room + self._num_rows * (self._row + self._gap) - self._gap

    @property
    def room(self) -> int:
        """The height of the headings over a row, in pixels."""
        return _HEAD_LINE * (1 + max(map(len, self.heads)))

    @property
    def axes(self) -> Iterator[AxisIds]:
        """The axes of each panel: an x axis of its own, and the y axis of its row."""
        for index in range(len(self.names)):
            row = index // len(self._columns)
            yield {"xaxis": _axis_name("x", index), "yaxis": _axis_name("y", row)}

    def add_to(self, figure: go.Figure, bins: Bins, labels: tuple[str, str]) -> None:
        """Lay out the axes of all panels, which share their ends, and name them."""
        for index, axes in enumerate(self.axes):
            row, column = divmod(index, len(self._columns))
            top = self.height - self.room - row * (self._row + self._gap)
            figure.layout[_layout_name(axes["xaxis"])] = {
                "domain": self._columns[column],
                "range": [bins.low, bins.high],
                "nticks": 5,
                "anchor": axes["yaxis"],
            }
            figure.layout[_layout_name(axes["yaxis"])] = {
                "domain": [(top - self._row) / self.height, top / self.height],
                "range": [bins.low, bins.high],
                "title": {"text": labels[1]},
            }
            self._add_head(figure, index, axes)
        self._add_title(figure, labels[0])

    def add_guide(self, figure: go.Figure, bins: Bins, theme: Theme) -> None:
        """Draw the line on which both engines agree, under the points."""
        for axes in self.axes:
            figure.add_shape(
                type="line",
                layer="below",
                xref=axes["xaxis"],
                yref=axes["yaxis"],
                x0=bins.low,
                y0=bins.low,
                x1=bins.high,
                y1=bins.high,
                line={"color": theme.muted, "width": 1, "dash": "dot"},
            )

    def add_empty(
        self, figure: go.Figure, axes: AxisIds, why: str, theme: Theme
    ) -> None:
        """Write into a panel why it is empty."""
        # An axis without a trace would not be drawn.
        figure.add_scatter(x=[None], y=[None], **axes)
        figure.add_annotation(
            text=why,
            x=0.5,
            y=0.5,
            showarrow=False,
            font={"color": theme.muted},
            bgcolor=theme.paper,
            **_domains(axes),
        )

    @property
    def _columns(self) -> tuple[tuple[float, float], ...]:
        return _ALONE if len(self.names) == 1 else _BESIDE

    @property
    def _num_rows(self) -> int:
        return -(-len(self.names) // len(self._columns))

    @property
    def _row(self) -> int:
        return _HEIGHT if self._num_rows == 1 else _HEIGHT_OF_MANY

    @property
    def _gap(self) -> int:
        return self.room + _HEAD_ABOVE + _TICKS

    def _add_head(self, figure: go.Figure, index: int, axes: AxisIds) -> None:
        figure.add_annotation(
            text="<br>".join([f"<b>{self.names[index]}</b>", *self.heads[index]]),
            x=0,
            y=1,
            xanchor="left",
            yanchor="top",
            yshift=self.room + _HEAD_ABOVE,
            align="left",
            showarrow=False,
            font={"size": _HEAD_SIZE},
            **_domains(axes),
        )

    def _add_title(self, figure: go.Figure, text: str) -> None:
        figure.add_annotation(
            text=text,
            x=0.5,
            y=0,
            xref="paper",
            yref="paper",
            yanchor="top",
            yshift=-_TITLE_BELOW,
            showarrow=False,
        )


def _axis_name(axis: str, index: int) -> str:
    """Return the name of an axis in traces: the first has no number."""
    return f"{axis}{index + 1}" if index else axis


def _layout_name(axis: str) -> str:
    """Return the name of an axis in the layout.

    Examples
    --------
    >>> _layout_name("x"), _layout_name("y2")
    ('xaxis', 'yaxis2')
    """
    return f"{axis[0]}axis{axis[1:]}"


def _domains(axes: AxisIds) -> dict[str, str]:
    """Return references to shares of a panel, not to values on its axes."""
    return {"xref": f"{axes['xaxis']} domain", "yref": f"{axes['yaxis']} domain"}


_FIRST_AND_LATER = ("first round", "later rounds")
# Characters of a name, which is bold, in half a figure of 400 pixels.
_NAME = 20


def name_panels(by: str | None, values: Iterable[object]) -> list[str]:
    """Name the panel of each value of a column, or those of rounds."""
    if by is None:
        return [*_FIRST_AND_LATER]
    names = [shorten_value(f"{by} {value}", _NAME) for value in values]
    check_num_lines(by, len(names))
    return names


def build_panels(agreed: pd.DataFrame, names: Sequence[str]) -> Panels:
    """Write `stats.agreement` over each panel, or why it is empty into it."""
    rows = [row for _, row in agreed.iterrows()]
    return Panels(
        names=names,
        heads=[*map(_head, rows)],
        whys=[_why(row, name) for row, name in zip(rows, names, strict=True)],
    )


def _why(row: pd.Series[Any], name: str) -> str:
    return f"{CROSS} none finite" if row["num_nonfinite"] else f"no {name}"


def _head(row: pd.Series[Any]) -> list[str]:
    if not row["num"]:
        return [pluralize(0, "token")]
    size = f"mean |difference| {format_number(row['mean_abs_diff'])}"
    is_flat = math.isnan(row["pearson"])
    last = "undefined" if is_flat else f"{row['pearson']:.4f}"
    return [pluralize(row["num"], "token"), size, f"Pearson r {last}"]


def explain_left_out(agreed: pd.DataFrame) -> list[str]:
    """State how much is not drawn, if anything."""
    count = int(agreed["num_nonfinite"].sum())
    size = pluralize(count, "token")
    return [f"left out: {size} without two finite values"] if count else []


def why_empty(agreed: pd.DataFrame) -> str:
    """State why there is nothing to draw."""
    count = int(agreed["num_nonfinite"].sum())
    if count:
        return f"{CROSS} {pluralize(count, 'token')}, none with two finite values"
    return NO_TOKENS


# Symbols tell the sign of a difference in grey; in text they are ▲ and ▼.
_UP, _DOWN = "triangle-up", "triangle-down"
# How many of the largest differences each panel marks.
NUM_WORST = 30
# Where the colours begin: the darkest are not visible on dark paper.
_START = {"light": 0.0, "dark": 0.35}


@dataclass(frozen=True, kw_only=True)
class Clouds:
    """The points of all panels, as densities and as marks.

    Attributes
    ----------
    cells: As `stats.densities` gives them.
    marks: Points that are drawn one by one: `panel`, `x`, `y`, `difference`, `color`,
        and `text` if there is any.
    bins: Of both axes; marks beyond are drawn at the edge.
    numbers: Columns of `marks` for hover texts and clicks.
    hover: The hover text of a mark, in plotly's syntax.
    """

    panels: Panels
    cells: pd.DataFrame
    marks: pd.DataFrame
    bins: Bins
    numbers: list[str]
    hover: str

    def draw(
        self, title: str, lines: Sequence[str], labels: tuple[str, str], theme: Theme
    ) -> go.Figure:
        """Draw all panels, and the scale of the density if there is one."""
        counts = self.cells["num"].to_numpy()
        has_bar = len(counts) > 0
        bottom = BOTTOM if has_bar else AXIS_ROOM
        plot = self.panels.height
        figure = new_figure(title, lines, theme, plot=plot, bottom=bottom)
        self.panels.add_to(figure, self.bins, labels)
        self.panels.add_guide(figure, self.bins, theme)
        scale = _scale(counts, theme)
        for index, axes in enumerate(self.panels.axes):
            self._add_panel(figure, index, axes, scale, theme)
        if has_bar:
            add_color_bar(figure, scale, counts, "tokens in a bin, logarithmic", theme)
        return figure

    def _add_panel(
        self,
        figure: go.Figure,
        index: int,
        axes: AxisIds,
        scale: LogScale,
        theme: Theme,
    ) -> None:
        cells = self.cells[self.cells["panel"] == index]
        marks = self.marks[self.marks["panel"] == index]
        if len(cells):
            self._add_image(figure, cells, axes, scale, theme)
        self._add_marks(figure, marks, axes, theme)
        if len(cells) == len(marks) == 0:
            self.panels.add_empty(figure, axes, self.panels.whys[index], theme)

    def _add_image(
        self,
        figure: go.Figure,
        cells: pd.DataFrame,
        axes: AxisIds,
        scale: LogScale,
        theme: Theme,
    ) -> None:
        num, centres = self.bins.num, self.bins.centres.astype(np.float32)
        counts = np.full((num, num), np.nan, dtype=np.float32)
        counts[cells["y_bin"], cells["x_bin"]] = cells["num"]
        figure.add_heatmap(
            z=counts,
            x=centres,
            y=centres,
            zmin=scale.low,
            zmax=scale.high,
            colorscale=scale.linear_colors(theme),
            showscale=False,
            hoverongaps=False,
            hovertemplate="%{z:,} tokens in this bin<extra></extra>",
            **axes,
        )

    def _add_marks(
        self, figure: go.Figure, marks: pd.DataFrame, axes: AxisIds, theme: Theme
    ) -> None:
        ends = self.bins.low, self.bins.high
        has_text = "text" in marks
        figure.add_scatter(
            x=marks["x"].clip(*ends).to_numpy(np.float32),
            y=marks["y"].clip(*ends).to_numpy(np.float32),
            mode="markers",
            marker={
                "symbol": np.where(marks["difference"] > 0, _UP, _DOWN),
                "size": 8,
                "color": marks["color"],
                "line": {"color": theme.paper, "width": 1},
            },
            text=marks["text"] if has_text else None,
            customdata=marks[self.numbers].to_numpy(np.float32),
            hovertemplate=("<b>%{text}</b><br>" if has_text else "") + self.hover,
            cliponaxis=False,
            **axes,
        )


def _scale(counts: Array, theme: Theme) -> LogScale:
    """Start at one point in a bin, so that a single one never looks like many."""
    high = max(10.0, LogScale.around(counts).high)
    return LogScale(low=1.0, high=high, start=_START[theme.name])

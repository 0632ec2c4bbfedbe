"""Many points as an image of their density, with the outliers on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.figures._parts.canvas import TOP, new_figure
from rounddiag.figures._parts.scales import BOTTOM, LogScale, add_color_bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag._typing import Array
    from rounddiag.figures._parts.canvas import Theme
    from rounddiag.figures._parts.panels import Axes, Panels
    from rounddiag.stats.agreement import Bins


LAYERS = ("density", "points", "diagonal")
# Room under a figure without a colour bar, in pixels.
_BOTTOM = 52
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
    panels : Panels
    cells : DataFrame
        As `stats.densities` gives them; empty where all points are drawn.
    marks : DataFrame
        Points that are drawn one by one: `panel`, `x`, `y`, `difference`, `color`, and
        `text` if there is any.
    ends : (Bins, Bins)
        The bins of x and y; marks beyond are drawn at the edge.
    guide : (float, float)
        The y values, left and right, of the line on which both engines agree.
    noun : str
        The name of what a point stands for.
    numbers : list of str
        Columns of `marks` for hover texts and clicks.
    hover : str
        The hover text of a mark, in plotly's syntax.
    layers : mapping of str to bool
        Which of `LAYERS` are drawn.
    """

    panels: Panels
    cells: pd.DataFrame
    marks: pd.DataFrame
    ends: tuple[Bins, Bins]
    guide: tuple[float, float]
    noun: str
    numbers: list[str]
    hover: str
    layers: Mapping[str, bool]

    def draw(
        self, title: str, lines: Sequence[str], labels: tuple[str, str], theme: Theme
    ) -> go.Figure:
        """Draw all panels, and the scale of the density if there is one."""
        counts = self.cells["num"].to_numpy()
        has_bar = len(counts) > 0 and self.layers["density"]
        bottom = BOTTOM if has_bar else _BOTTOM
        height = TOP + self.panels.room + self.panels.height + bottom
        figure = new_figure(title, lines, theme, height=height, bottom=bottom)
        figure.layout.margin.t += self.panels.room
        self.panels.add_to(figure, self.ends, labels)
        if self.layers["diagonal"]:
            self.panels.add_guide(figure, self.ends[0], self.guide, theme)
        scale = _scale(counts, theme)
        for index, axes in enumerate(self.panels.axes):
            self._add_panel(figure, index, axes, scale, theme)
        if has_bar:
            label = f"{self.noun}s in a bin, logarithmic"
            add_color_bar(figure, scale, counts, label)
        return figure

    def _add_panel(
        self, figure: go.Figure, index: int, axes: Axes, scale: LogScale, theme: Theme
    ) -> None:
        cells = self.cells[self.cells["panel"] == index]
        marks = self.marks[self.marks["panel"] == index]
        has_image = len(cells) > 0 and self.layers["density"]
        if has_image:
            self._add_image(figure, cells, axes, scale)
        if self.layers["points"]:
            self._add_marks(figure, marks, axes, theme)
        if len(cells) == len(marks) == 0:
            self.panels.add_empty(figure, axes, self.panels.whys[index], theme)
        elif not has_image and not self.layers["points"]:
            self.panels.add_empty(figure, axes, "left out", theme)

    def _add_image(
        self, figure: go.Figure, cells: pd.DataFrame, axes: Axes, scale: LogScale
    ) -> None:
        x, y = self.ends
        counts = np.full((y.num, x.num), np.nan, dtype=np.float32)
        counts[cells["y_bin"], cells["x_bin"]] = cells["num"]
        figure.add_heatmap(
            z=counts,
            x=x.centres.astype(np.float32),
            y=y.centres.astype(np.float32),
            zmin=scale.low,
            zmax=scale.high,
            colorscale=scale.linear_colors(),
            showscale=False,
            hoverongaps=False,
            hovertemplate=f"%{{z:,}} {self.noun}s in this bin<extra></extra>",
            **axes,
        )

    def _add_marks(
        self, figure: go.Figure, marks: pd.DataFrame, axes: Axes, theme: Theme
    ) -> None:
        x, y = self.ends
        has_text = "text" in marks
        figure.add_scatter(
            x=marks["x"].clip(x.low, x.high).to_numpy(np.float32),
            y=marks["y"].clip(y.low, y.high).to_numpy(np.float32),
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

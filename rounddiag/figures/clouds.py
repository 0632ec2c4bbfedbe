"""Many points as an image of their density, with the few that stand out on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.color_bar import add_color_bar
from rounddiag.figures.panels import PANELS, add_empty, panels
from rounddiag.figures.scale import LogScale

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from rounddiag.figures.theme import Theme
    from rounddiag.stats.densities import Bins

    Array = np.ndarray[Any, Any]


# What tells the sign of a difference in grey; in text they are ▲ and ▼.
_UP, _DOWN = "triangle-up", "triangle-down"
# Points that stand out, of each panel.
NUM_WORST = 30
# Where the colours begin: the darkest cannot be told from dark paper.
_START = {"light": 0.0, "dark": 0.35}


@dataclass(frozen=True, kw_only=True)
class Clouds:
    """What both panels show.

    Attributes
    ----------
    cells : DataFrame
        As `stats.densities` gives them; none where all points are drawn.
    marks : DataFrame
        Points to be drawn one by one: `is_later`, `x`, `y`, `difference`, `color`, and
        `text` if there is any.
    ends : (Bins, Bins)
        Of x and y; marks beyond are drawn at the edge.
    noun : str
        What a point stands for.
    numbers : list of str
        Columns of `marks` that a click gives, in this order.
    hover : str
        What a mark says, in plotly's words.
    """

    cells: pd.DataFrame
    marks: pd.DataFrame
    ends: tuple[Bins, Bins]
    noun: str
    numbers: list[str]
    hover: str

    def add_to(self, figure: go.Figure, look: Theme) -> None:
        """Draw both panels, and the scale of the density if there is one."""
        counts = self.cells["num"].to_numpy()
        scale = _scale(counts, look)
        parts = zip(PANELS, panels(self.cells), panels(self.marks), strict=True)
        for name, (axis, cells), (_, marks) in parts:
            if len(cells):
                self._add_image(figure, cells, axis, scale)
            elif marks.empty:
                add_empty(figure, axis, f"no {name}", look)
            self._add_marks(figure, marks, axis, look)
        if len(counts):
            title = f"{self.noun}s in a bin, logarithmic"
            add_color_bar(figure, scale, counts, title)

    def _add_image(
        self, figure: go.Figure, cells: pd.DataFrame, axis: str, scale: LogScale
    ) -> None:
        x, y = self.ends
        counts = np.full((y.num, x.num), np.nan, dtype=np.float32)
        counts[cells["y_bin"], cells["x_bin"]] = cells["num"]
        figure.add_heatmap(
            z=counts,
            x=x.centres.astype(np.float32),
            y=y.centres.astype(np.float32),
            xaxis=axis,
            zmin=scale.low,
            zmax=scale.high,
            colorscale=scale.linear_colors(),
            showscale=False,
            hoverongaps=False,
            hovertemplate=f"%{{z:,}} {self.noun}s in this bin<extra></extra>",
        )

    def _add_marks(
        self, figure: go.Figure, marks: pd.DataFrame, axis: str, look: Theme
    ) -> None:
        x, y = self.ends
        has_text = "text" in marks
        figure.add_scatter(
            x=marks["x"].clip(x.low, x.high).to_numpy(np.float32),
            y=marks["y"].clip(y.low, y.high).to_numpy(np.float32),
            xaxis=axis,
            mode="markers",
            marker={
                "symbol": np.where(marks["difference"] > 0, _UP, _DOWN),
                "size": 8,
                "color": marks["color"],
                "line": {"color": look.paper, "width": 1},
            },
            text=marks["text"] if has_text else None,
            customdata=marks[self.numbers].to_numpy(np.float32),
            hovertemplate=("<b>%{text}</b><br>" if has_text else "") + self.hover,
            cliponaxis=False,
        )


def _scale(counts: Array, look: Theme) -> LogScale:
    """Reach from one point in a bin, so that a lone one never looks like many."""
    high = max(10.0, LogScale.around(counts).high)
    return LogScale(low=1.0, high=high, start=_START[look.name])

"""Panels with the same axes beside each other: the first round and later ones, say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import plotly.graph_objects as go

    from rounddiag.figures.theme import Theme
    from rounddiag.stats.densities import Bins

# The parts of the width that the panels of a row take: one alone, or two.
_ALONE, _BESIDE = ((0.0, 1.0),), ((0.0, 0.455), (0.545, 1.0))
# Height of a panel, in pixels: that of one row, and of each where there are more.
_HEIGHT, _HEIGHT_OF_MANY = 340, 240
# Bins that both axes of a panel are divided into: as many have the room to be seen.
_BINS, _BINS_OF_MANY = 100, 60
# Lines of a head, in a size of which 25 characters fit half a figure of 400 pixels.
_HEAD_SIZE, _HEAD_LINE = 11, 15
# Heads stand clear of points at the upper edge, and of the ticks of the row above.
_HEAD_ABOVE, _TICKS = 5, 26
# The title that the x axes share begins this far under the plot.
_TITLE_BELOW = 26

# The names of a panel's axes, as a trace has them.
Axes: TypeAlias = "dict[str, str]"


@dataclass(frozen=True, kw_only=True)
class Panels:
    """Panels, in rows of two.

    Attributes
    ----------
    names : sequence of str
        Safe in plotly's pseudo HTML.
    heads : sequence of sequence of str
        Lines that are written over each, under its name.
    whys : sequence of str
        What is said in each that has nothing to show.
    """

    names: Sequence[str]
    heads: Sequence[Sequence[str]]
    whys: Sequence[str]

    @property
    def height(self) -> int:
        """Of all rows with what is between them, in pixels."""
        return self._num_rows * (self._row + self._gap) - self._gap

    @property
    def room(self) -> int:
        """What the heads of a row take over it, in pixels."""
        return _HEAD_LINE * (1 + max(map(len, self.heads)))

    @property
    def num_bins(self) -> int:
        """How finely densities are worth to be counted."""
        return _BINS if self._num_rows == 1 else _BINS_OF_MANY

    @property
    def axes(self) -> Iterator[Axes]:
        """Those of each panel: all have an x axis, and a row has one y axis."""
        for index in range(len(self.names)):
            row = index // len(self._columns)
            yield {"xaxis": _numbered("x", index), "yaxis": _numbered("y", row)}

    def add_to(
        self, figure: go.Figure, ends: tuple[Bins, Bins], labels: tuple[str, str]
    ) -> None:
        """Lay out the axes of all panels, which share their ends, and name them."""
        x_range, y_range = ([bins.low, bins.high] for bins in ends)
        for index, axes in enumerate(self.axes):
            row, column = divmod(index, len(self._columns))
            top = self.height - row * (self._row + self._gap)
            figure.layout[_layout_name(axes["xaxis"])] = {
                "domain": self._columns[column],
                "range": x_range,
                "nticks": 5,
                "anchor": axes["yaxis"],
            }
            figure.layout[_layout_name(axes["yaxis"])] = {
                "domain": [(top - self._row) / self.height, top / self.height],
                "range": y_range,
                "title": {"text": labels[1]},
            }
            self._add_head(figure, index, axes)
        self._add_title(figure, labels[0])

    def add_guide(
        self, figure: go.Figure, x: Bins, y: tuple[float, float], look: Theme
    ) -> None:
        """Draw the line on which both engines agree, under what is drawn."""
        for axes in self.axes:
            figure.add_shape(
                type="line",
                layer="below",
                xref=axes["xaxis"],
                yref=axes["yaxis"],
                x0=x.low,
                y0=y[0],
                x1=x.high,
                y1=y[1],
                line={"color": look.muted, "width": 1, "dash": "dot"},
            )

    def add_empty(self, figure: go.Figure, axes: Axes, why: str, look: Theme) -> None:
        """Say in a panel why it is empty."""
        # An axis without a trace would not be drawn.
        figure.add_scatter(x=[None], y=[None], **axes)
        figure.add_annotation(
            text=why,
            x=0.5,
            y=0.5,
            showarrow=False,
            font={"color": look.muted},
            bgcolor=look.paper,
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

    def _add_head(self, figure: go.Figure, index: int, axes: Axes) -> None:
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


def _numbered(axis: str, index: int) -> str:
    """Return what traces call an axis: the first has no number."""
    return f"{axis}{index + 1}" if index else axis


def _layout_name(axis: str) -> str:
    """Return what the layout calls an axis.

    Examples
    --------
    >>> _layout_name("x"), _layout_name("y2")
    ('xaxis', 'yaxis2')
    """
    return f"{axis[0]}axis{axis[1:]}"


def _domains(axes: Axes) -> dict[str, str]:
    """Refer to shares of a panel, in place of values on its axes."""
    return {
        "xref": f"{axes['xaxis']} domain",
        "yref": f"{axes['yaxis']} domain",
    }

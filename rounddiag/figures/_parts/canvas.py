"""Themes, and the empty figure that every plot starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, TypeAlias

import plotly.graph_objects as go
from plotly.colors import hex_to_rgb, sample_colorscale

from rounddiag.errors import require_one_of
from rounddiag.figures._parts.display import (
    is_in_jupyter,
    page_style,
    publish,
)
from rounddiag.figures._parts.labels import estimate_width, plain_text

ThemeName: TypeAlias = Literal["light", "dark"]


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of one theme; text has a contrast of at least 4.5 on the paper.

    Attributes
    ----------
    paper, shade, grid: Background, shaded areas, and thin lines.
    text, muted: Primary and secondary text.
    quiet: Shapes in the background.
    more, less: Blue for a higher log-prob in training than in sampling, orange for a
        lower one; nothing else has these colours.
    mark: What stands out: the onset, a warning.
    lines: The colours of up to 8 lines or groups.
    ramp: The first and the last colour of lines that have an order, such as rounds.
    follows_page: Whether a notebook's page may replace it by its own theme.
    """

    name: ThemeName
    paper: str
    shade: str
    grid: str
    text: str
    muted: str
    quiet: str
    more: str
    less: str
    mark: str
    lines: tuple[str, ...]
    ramp: tuple[str, str]
    follows_page: bool = False

    @property
    def changes(self) -> tuple[str, str]:
        """The colours of less and of more than before."""
        return self.lines[0], self.lines[3]


# The background is opaque, since a saved picture may be placed on a page of the other
# theme. Lines have the contrast that text needs. Lighter and darker ones alternate,
# because neighbouring bars touch.
LIGHT = Theme(
    name="light",
    paper="#ffffff",
    shade="#f1f3f5",
    grid="#dfe3e6",
    text="#1b1f23",
    muted="#5b6268",
    quiet="#858f97",
    more="#1f66ad",
    less="#b34d00",
    mark="#b5179e",
    lines=(
        *("#007a55", "#6d2552", "#7d6400", "#4b2580"),
        *("#5b6268", "#123f3a", "#75556e", "#3c3f00"),
    ),
    ramp=("#7a9a1f", "#083d3a"),
)
DARK = Theme(
    name="dark",
    paper="#111111",
    shade="#1e2124",
    grid="#33383d",
    text="#e8eaed",
    muted="#a3aab1",
    quiet="#6b747c",
    more="#6db3f2",
    less="#f29b4b",
    mark="#ff79c6",
    lines=(
        *("#2fc79a", "#b8709a", "#bcec8c", "#9880d0"),
        *("#e8eaed", "#4f9e95", "#d9b8d4", "#8f8c46"),
    ),
    ramp=("#e6f5a3", "#2b8f83"),
)
_THEMES: dict[str, Theme] = {theme.name: theme for theme in (LIGHT, DARK)}
_default: list[Theme] = [replace(LIGHT, follows_page=True)]


def use_theme(name: ThemeName) -> None:
    """Set the default theme of figures.

    JupyterLab still shows them in its own theme. Existing figures keep their theme.

    Parameters
    ----------
    name : {"light", "dark"}

    Examples
    --------
    >>> use_theme("light")
    """
    _default[0] = replace(theme_of(name), follows_page=True)


def theme_of(name: ThemeName | None) -> Theme:
    """Return the theme of this name, or the one set by `use_theme`."""
    if name is None:
        return _default[0]
    advice = "Leave it out for the default of `rounddiag.figures.use_theme`."
    require_one_of(name, sorted(_THEMES), key="theme", advice=advice)
    return _THEMES[name]


def list_colors(theme: Theme) -> dict[str, str]:
    """Return the colours of a theme by their purpose."""
    values = {entry.name: getattr(theme, entry.name) for entry in fields(theme)}
    del values["name"]
    return {name: value for name, value in values.items() if isinstance(value, str)}


def scale_colors(theme: Theme, num: int) -> list[str]:
    """Return the colours of lines that have an order: the later, the darker."""
    places = [index / max(num - 1, 1) for index in range(num)]
    return sample_colorscale([*theme.ramp], places)


def with_opacity(color: str, opacity: float) -> str:
    """Return a colour through which the paper is seen."""
    return f"rgba{(*hex_to_rgb(color), opacity)}"


def color_changes(old: Theme, new: Theme) -> dict[str, str]:
    """Return each colour of figures in one theme, and its counterpart in another.

    Those of `scale_colors` are left out: how many there are depends on the figure.
    """
    pairs = dict(zip(old.lines, new.lines, strict=True))
    names = list_colors(old).items()
    return pairs | {color: list_colors(new)[name] for name, color in names}


def opacity_changes(old: Theme, new: Theme) -> dict[str, str]:
    """Return what the colours of signed scales begin with, in both themes."""
    ends = [(side.more, side.less, *side.changes) for side in (old, new)]
    parts = ([str(hex_to_rgb(color))[1:-1] for color in colors] for colors in ends)
    return dict(zip(*parts, strict=True))


class Figure(go.Figure):  # type: ignore[misc]
    """A figure that pages without plotly replace by a picture or text."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 plotly's
        super().__init__(*args, **kwargs)
        # By it shinywidgets knows a figure of plotly; pickle needs that of the class.
        self.__dict__["__module__"] = go.Figure.__module__

    def _ipython_display_(self) -> None:
        if is_in_jupyter():
            publish(self, self._style())
        else:
            super()._ipython_display_()

    def show(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 as plotly has them
        """Show it as plotly does; without arguments, as a notebook does."""
        if args or kwargs:
            super().show(*args, **kwargs)
        else:
            self._ipython_display_()

    def _style(self) -> str | None:
        return None


class PageFigure(Figure):
    """A figure that JupyterLab shows in its own theme, also when that is switched."""

    def _style(self) -> str:
        is_light = self.layout.template.layout.paper_bgcolor == LIGHT.paper
        old, new = (LIGHT, DARK) if is_light else (DARK, LIGHT)
        colors = color_changes(old, new)
        for num in range(1, len(old.lines) + 1):
            pairs = zip(scale_colors(old, num), scale_colors(new, num), strict=True)
            colors.update(pairs)
        text = self.to_json()
        used = {color: instead for color, instead in colors.items() if color in text}
        return page_style(used, new.name)


FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, Ubuntu, sans-serif'
# Room over a plot whose title has no lines of explanation, and under it for the ticks
# and the title of the x axis, in pixels.
TOP, AXIS_ROOM = 60, 52
_TITLE_SIZE, _TEXT_SIZE = 16, 12
# Plotly spaces all lines of a title by the size of its font.
_LINE_HEIGHT = 1.3 * _TITLE_SIZE
# Plotly lifts a title of several lines: room over one of a single line, and over those.
_OVER_ONE, _OVER_MORE = 13, 24
# Room between the lines under the title and the plot.
_UNDER = 26
# Height of a row of lines, width of a small letter, and of the gap before each line.
_ROW, _LETTER, _GAP = 19, 6.4, 30
# Heights of figures fit this width; in others the plot gives or takes a few pixels.
_WIDTH = 800
# Pixels of the plot in a figure of 400, in which points and ticks must not touch; and
# of a character of a tick.
NARROW_PLOT, CHARACTER = 300, 6.5


def new_figure(
    title: str,
    lines: Sequence[str],
    theme: Theme,
    *,
    plot: int,
    bottom: int = AXIS_ROOM,
) -> go.Figure:
    """Make an empty figure with a title and lines of explanation under it.

    The lines stand side by side as far as the page has room. They are entries of
    plotly's legend, because nothing else in plotly wraps. `plot` and `bottom` are the
    heights of the plot and of the room under it, in pixels. A figure of 400 pixels has
    room for lines of about 60 characters; one with `<br>` stays together.
    """
    margin = {"t": TOP, "b": bottom, "l": 64, "r": 20}
    num_more = title.count("<br>")
    if lines:
        margin["t"] = _UNDER
    height = TOP + _estimate_rows(lines) * _ROW + plot + bottom
    kind = PageFigure if theme.follows_page else Figure
    return kind(
        layout={
            "template": _template(theme),
            "title": {
                "text": f"<b>{title}</b>",
                "pad": {"t": _OVER_MORE if num_more else _OVER_ONE},
            },
            "height": height + round(_LINE_HEIGHT * num_more),
            "margin": margin,
            "modebar": {"remove": ["sendChartToCloud"]},
            "showlegend": bool(lines),
            # Room for the title.
            "legend": {"title": {"text": "<br>".join([" "] * (1 + num_more))}},
            "shapes": [{**_NOTHING, "name": line} for line in lines],
        }
    )


# A shape that is seen in the legend only.
_NOTHING = {
    "type": "line",
    **dict.fromkeys(("xref", "yref"), "paper"),
    **dict.fromkeys(("x0", "x1", "y0", "y1"), 0),
    "line": {"width": 0},
    "opacity": 0,
    "showlegend": True,
}


def plot_height(figure: go.Figure) -> int:
    """Return how high the plot is, in pixels, where the page is as wide as planned."""
    lines = [shape.name for shape in figure.layout.shapes if shape.showlegend]
    around = TOP + _estimate_rows(lines) * _ROW + figure.layout.margin.b
    return int(figure.layout.height - around)


def _estimate_rows(lines: Sequence[str]) -> int:
    """Estimate how many rows the lines take, in columns as wide as the widest."""
    parts = [line.split("<br>") for line in lines]
    if not lines:
        return 0
    widest = max(estimate_width(plain_text(part)) for line in parts for part in line)
    num = max(int((_WIDTH - 84) / (_LETTER * widest + _GAP)), 1)
    rows = (parts[start : start + num] for start in range(0, len(parts), num))
    return sum(max(map(len, row)) for row in rows)


def colorize(text: str, color: str) -> str:
    """Colour text in plotly's pseudo HTML."""
    return f'<span style="color:{color}">{text}</span>'


def cross(theme: Theme) -> dict[str, Any]:
    """Return the plotly marker of a value that is not finite."""
    line = {"width": 1.5, "color": theme.text}
    return {"symbol": "x-thin", "size": 8, "line": line}


def empty_figure(title: str, why: str, theme: Theme) -> go.Figure:
    """Make a figure that states why there is nothing to draw."""
    figure = new_figure(title, [why], theme, plot=TOP, bottom=0)
    figure.update_layout(xaxis_visible=False, yaxis_visible=False)
    return figure


def _axis(theme: Theme) -> dict[str, Any]:
    return {
        "gridcolor": theme.grid,
        "linecolor": theme.grid,
        "zeroline": False,
        "zerolinecolor": theme.muted,
        "ticks": "outside",
        "tickcolor": theme.grid,
        "tickfont": {"color": theme.muted},
        "title": {"font": {"color": theme.text, "size": _TEXT_SIZE}, "standoff": 8},
        "exponentformat": "power",
    }


@cache  # plotly copies it into each figure
def _template(theme: Theme) -> go.layout.Template:
    axis = _axis(theme)
    in_no_legend = [{"showlegend": False}]
    return go.layout.Template(
        data=dict.fromkeys(("bar", "heatmap", "scatter", "scattergl"), in_no_legend),
        layout={
            "paper_bgcolor": theme.paper,
            "plot_bgcolor": theme.paper,
            "font": {"family": FONT, "color": theme.text, "size": _TEXT_SIZE},
            "title": {
                "font": {"size": _TITLE_SIZE, "weight": "normal"},
                "x": 0,
                "xanchor": "left",
                "y": 1,
                "yanchor": "top",
                "yref": "container",
                "pad": {"l": 24},
            },
            "legend": {
                "orientation": "h",
                "x": 0,
                "xref": "container",
                "y": 1,
                "yref": "container",
                "yanchor": "top",
                "bgcolor": "rgba(0,0,0,0)",
                "font": {"color": theme.muted},
                "title": {"side": "top", "font": {"size": _TITLE_SIZE + 3}},
                "traceorder": "normal",
                "indentation": -15,
                "itemclick": False,
                "itemdoubleclick": False,
            },
            "xaxis": {**axis, "showgrid": False},
            "yaxis": {**axis, "automargin": True},
            "hoverlabel": {
                "bgcolor": theme.shade,
                "bordercolor": theme.muted,
                "font": {"family": FONT, "color": theme.text},
                "align": "left",
            },
            "modebar": {
                "bgcolor": "rgba(0,0,0,0)",
                "color": theme.muted,
                "activecolor": theme.text,
            },
            "dragmode": "zoom",
        },
    )

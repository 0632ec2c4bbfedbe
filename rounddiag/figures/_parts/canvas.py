"""Themes, and the empty figure that every plot starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import plotly.graph_objects as go

from rounddiag.errors import FrameError, RounddiagError

if TYPE_CHECKING:
    from collections.abc import Sequence


ThemeName: TypeAlias = Literal["light", "dark"]


@dataclass(frozen=True, kw_only=True)
class Theme:
    """Colours of one theme; text has a contrast of at least 4.5 on the paper.

    Attributes
    ----------
    name : str
    paper, shade, grid : str
        Background, shaded areas, and thin lines.
    text, muted : str
        Primary and secondary text.
    quiet : str
        Shapes in the background.
    more, less : str
        Blue for a higher log-prob in training than in sampling, orange for a lower one.
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


# Opaque: a saved picture may stand on a page of the other theme.
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
)
_THEMES: dict[str, Theme] = {theme.name: theme for theme in (LIGHT, DARK)}
_default: list[Theme] = [LIGHT]


def use_theme(name: ThemeName) -> None:
    """Set the default theme of figures.

    Parameters
    ----------
    name : {"light", "dark"}

    Raises
    ------
    FrameError
        If there is no theme of this name.

    Examples
    --------
    >>> use_theme("light")
    """
    _default[0] = theme_of(name)


def theme_of(name: ThemeName | None) -> Theme:
    """Return the theme of this name, or the one set by `use_theme`.

    Raises
    ------
    FrameError
        If there is no theme of this name.
    """
    if name is None:
        return _default[0]
    if name not in _THEMES:
        raise FrameError.build(
            key="theme",
            expected=f"one of {sorted(_THEMES)}",
            found=repr(name),
            advice="Leave it out for the default of `rounddiag.figures.use_theme`.",
        )
    return _THEMES[name]


FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, Ubuntu, sans-serif'
# Room over a plot whose title has no lines of explanation, in pixels.
TOP = 60
_TITLE_SIZE, _TEXT_SIZE = 16, 12
# Plotly spaces all lines of a title by the size of its font.
_LINE_HEIGHT = 1.3 * _TITLE_SIZE
# Plotly lifts a title of several lines: room over one of a single line, and over those.
_OVER_ONE, _OVER_MORE = 13, 24


def new_figure(
    title: str, lines: Sequence[str], theme: Theme, *, height: int, bottom: int = 52
) -> go.Figure:
    """Make an empty figure with a title and lines of explanation under it.

    The height, in pixels and without the lines, grows with them, so that nothing is
    cut; the width is left to the page. A figure of 400 pixels has room for lines of
    about 60 characters.
    """
    text = "".join(f"<br>{colorize(line, theme.muted, _TEXT_SIZE)}" for line in lines)
    above = round(_LINE_HEIGHT * len(lines))
    return go.Figure(
        layout={
            "template": _template(theme),
            "title": {
                "text": f"<b>{title}</b>{text}",
                "pad": {"t": _OVER_MORE if lines else _OVER_ONE},
            },
            "height": height + above,
            "margin": {"t": TOP + above, "b": bottom, "l": 64, "r": 20},
            "modebar": {"remove": ["sendChartToCloud"]},
        }
    )


def colorize(text: str, color: str, size: int | None = None) -> str:
    """Colour text in plotly's pseudo HTML, and set its size in pixels."""
    style = f"color:{color}" + (f";font-size:{size}px" if size else "")
    return f'<span style="{style}">{text}</span>'


def cross(theme: Theme) -> dict[str, Any]:
    """Return the plotly marker of a value that is not finite."""
    line = {"width": 1.5, "color": theme.text}
    return {"symbol": "x-thin", "size": 8, "line": line}


def empty_figure(title: str, why: str, theme: Theme) -> go.Figure:
    """Make a figure that states why there is nothing to draw."""
    figure = new_figure(title, [why], theme, height=TOP, bottom=0)
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


def _template(theme: Theme) -> go.layout.Template:
    axis = _axis(theme)
    return go.layout.Template(
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
                "pad": {"l": 14},
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
            "showlegend": False,
            "dragmode": "zoom",
        }
    )


def png(fig: go.Figure, width: int = 900, height: int | None = None) -> bytes:
    """Draw a figure as a PNG.

    Parameters
    ----------
    fig : plotly.graph_objects.Figure
    width : int
        In pixels.
    height : int, optional
        In pixels; the figure's own when left out.

    Returns
    -------
    bytes

    Raises
    ------
    RounddiagError
        If kaleido, or a browser that it can start, is missing.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> preview = png(rd.plot_rounds(batch))  # doctest: +SKIP
    """
    try:
        picture: bytes = fig.to_image(format="png", width=width, height=height)
    except RuntimeError as error:  # what plotly and kaleido raise for either
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RounddiagError.build(
            expected="kaleido, and Chrome or Chromium, to draw a picture",
            found=lines[0].rstrip("."),
            advice="Run `pip install kaleido` where this Python is, and install"
            " Chromium, or name it in the environment variable BROWSER_PATH.",
        ) from error
    return picture

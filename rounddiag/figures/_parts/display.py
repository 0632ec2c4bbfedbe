"""How a figure is shown: in a notebook's theme, without plotly there, and as a PNG.

JupyterLab draws a figure only if plotly is installed in its own environment, which may
be another than the kernel's; and it draws it in the colours of the figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio

from rounddiag.errors import RounddiagError
from rounddiag.figures._parts.labels import plain_text

# What plotly sends in Jupyter; with another renderer the user wants something else.
_IN_JUPYTER = "plotly_mimetype"
_WITHOUT_PLOTLY = (
    "This page cannot draw the figure. JupyterLab can: run <code>pip install"
    " plotly</code> in its environment, and reload the page. A page exported by"
    " nbconvert has figures if the notebook runs"
    " <code>plotly.io.renderers.default = 'notebook'</code> first;"
    " <code>rounddiag.report</code> writes one without a notebook."
)
# Where plotly puts a colour: in the style of shapes, in that of text within a title, in
# attributes of hatches, and behind all of it.
_PLACES = {
    "fill": ('style*="fill: {rgb}"', 'style*="fill:{plain}"', 'fill="{rgb}"'),
    "stroke": ('style*="stroke: {rgb}"', 'stroke="{rgb}"'),
    "background": ('style*="background: {rgb}"',),
}


def is_in_jupyter() -> bool:
    """Return whether figures go to JupyterLab, or another page with its extensions."""
    return bool(pio.renderers.default == _IN_JUPYTER)


def publish(figure: go.Figure, style: str | None) -> None:
    """Display a figure with its replacement for a page without plotly, and a style."""
    from IPython.display import display

    bundle: dict[str, Any] = figure._repr_mimebundle_()
    html = replacement(figure)
    display({**bundle, "text/html": html}, raw=True)  # type: ignore[no-untyped-call]
    if style is not None:
        html = f'<style class="rounddiag-theme">{style}</style>'
        display({"text/html": html, "text/plain": ""}, raw=True)  # type: ignore[no-untyped-call]


def replacement(figure: go.Figure) -> str:
    """Return what a page without plotly shows, as HTML: the words of the figure."""
    title, *lines = map(plain_text, caption(figure))
    notes = "".join(f"<li>{escape(line)}</li>" for line in lines)
    words = f"<p><b>{escape(title)}</b></p><ul>{notes}</ul>"
    return f'<div class="mathjax_ignore">{words}<p>{_WITHOUT_PLOTLY}</p></div>'


def caption(figure: go.Figure) -> list[str]:
    """Return the title, and the lines that stand under it."""
    title = figure.layout.title.text or ""
    lines = (shape.name for shape in figure.layout.shapes if shape.showlegend)
    return [line.replace("<br>", " ") for line in (title, *lines)]


def png(fig: go.Figure, width: int = 900, height: int | None = None) -> bytes:
    """Draw a figure as a PNG.

    Parameters
    ----------
    fig : plotly.graph_objects.Figure
    width : int
        In pixels.
    height : int, optional
        In pixels; the figure's own when left out.

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


def page_style(colors: Mapping[str, str], theme: str) -> str:
    """Return the style that replaces colours of the figure above, on pages of a theme.

    The page applies it whenever its theme changes; a figure need not be drawn again.
    Colour bars keep their colours.
    """
    is_light = str(theme == "light").lower()
    rules = (
        f":is({_selectors(places, old)}):not(.cbfill){{{name}:{new}!important}}"
        for old, new in colors.items()
        for name, places in _PLACES.items()
    )
    above = ".jp-OutputArea-child:has(+ .jp-OutputArea-child style.rounddiag-theme)"
    return (
        # The style itself takes no room.
        ".jp-OutputArea-child:has(> .jp-OutputArea-output > style.rounddiag-theme)"
        "{display:none}"
        f'[data-jp-theme-light="{is_light}"] {above} .js-plotly-plot'
        f"{{{''.join(rules)}}}"
    )


def _selectors(places: Sequence[str], color: str) -> str:
    known = {"rgb": _as_rgb(color), "plain": color}
    return ",".join(f"[{place.format(**known)}]" for place in places)


def _as_rgb(color: str) -> str:
    """Write a colour as browsers do in a style.

    Examples
    --------
    >>> _as_rgb("#5b6268"), _as_rgb("rgb(0, 34, 78)")
    ('rgb(91, 98, 104)', 'rgb(0, 34, 78)')
    """
    if not color.startswith("#"):
        return color
    return "rgb({}, {}, {})".format(*(int(color[at : at + 2], 16) for at in (1, 3, 5)))

"""Figures in a page of their own: pictures, and which words touch or are cut."""

from __future__ import annotations

import base64
import inspect
from collections.abc import Sequence
from typing import Any, Literal

import plotly.graph_objects as go
from playwright.sync_api import Browser, Page
from plotly.offline import get_plotlyjs

import rounddiag as rd

Theme = Literal["light", "dark"]
EVERY: list[tuple[Theme, int]] = [
    *(("light", 400), ("light", 1600)),
    *(("dark", 400), ("dark", 1600)),
]
# Themes differ in colours only: a figure is made once for both widths.
EITHER: list[tuple[Theme, int]] = [("light", 400), ("light", 1600)]

# Boxes are as high as the font's ascent and descent, which is more than is inked.
_DRAW = """async ([spec, width]) => {
  document.body.innerHTML = `<div id="figure" style="width:${width}px"></div>`;
  const figure = document.getElementById('figure');
  const {data, layout} = JSON.parse(spec);
  await Plotly.newPlot(figure, data, {...layout, width}, {displayModeBar: false});
  await new Promise(done => requestAnimationFrame(done));
}"""
_CLASHES = """() => {
  const page = document.querySelector('svg.main-svg').getBoundingClientRect();
  const shrunk = box => ({left: box.left + 1, right: box.right - 1,
    top: box.top + 2, bottom: box.bottom - 2});
  const found = [...document.querySelectorAll('svg.main-svg text')]
    .filter(one => one.textContent.trim() && one.getBoundingClientRect().width > 0)
    .map(one => ({text: one.textContent, ...shrunk(one.getBoundingClientRect())}));
  const cut = found.filter(one => one.left < page.left || one.top < page.top
    || one.right > page.right || one.bottom > page.bottom);
  const touching = found.flatMap((one, index) => found.slice(index + 1)
    .filter(other => one.left < other.right && other.left < one.right
      && one.top < other.bottom && other.top < one.bottom)
    .map(other => `touch: ${one.text} | ${other.text}`));
  return [...cut.map(one => `cut: ${one.text}`), ...touching];
}"""

# As kaleido does.
_PICTURE = """([spec, width]) =>
  Plotly.toImage(JSON.parse(spec), {format: 'png', width, imageDataOnly: true})"""


class FigurePage:
    """A page that shows one figure at a time."""

    def __init__(self, browser: Browser) -> None:
        self.page: Page = browser.new_page(viewport={"width": 1600, "height": 1200})
        self.page.add_script_tag(content=get_plotlyjs())

    def clashes(self, spec: str, width: int) -> list[str]:
        """Draw a figure so wide, and tell what is cut or touches something else."""
        self.page.evaluate(_DRAW, [spec, width])
        return list(self.page.evaluate(_CLASHES))

    def picture(self, figure: go.Figure, width: int) -> bytes:
        """Draw a figure so wide: a PNG."""
        return base64.b64decode(self.page.evaluate(_PICTURE, [figure.to_json(), width]))

    def close(self) -> None:
        self.page.close()


def clashes(
    page: FigurePage,
    name: str,
    data: Any,
    looks: Sequence[tuple[Theme, int]] = EITHER,
    **options: Any,
) -> list[str]:
    """Draw a figure of this name in each look, and tell what clashes in which."""
    draw = getattr(rd, name)
    themes = {theme for theme, _ in looks}
    specs = {theme: draw(data, theme=theme, **options).to_json() for theme in themes}
    return [
        f"{name} {options}, {theme}, {width}: {clash}"
        for theme, width in looks
        for clash in page.clashes(specs[theme], width)
    ]


def plots_with(option: str) -> list[str]:
    """Name the figures of a batch that have an option."""
    return [
        name
        for name in dir(rd)
        if name.startswith("plot_")
        and name != "plot_run"
        and option in inspect.signature(getattr(rd, name)).parameters
    ]

"""Figures in a page of their own: which of their words touch or are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plotly.offline import get_plotlyjs

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from playwright.sync_api import Browser, Page

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


class FigurePage:
    """A page that shows one figure at a time."""

    def __init__(self, browser: Browser) -> None:
        self.page: Page = browser.new_page(viewport={"width": 1600, "height": 1200})
        self.page.add_script_tag(content=get_plotlyjs())

    def clashes(self, figure: go.Figure, width: int) -> list[str]:
        """Draw a figure so wide, and tell what is cut or touches something else."""
        self.page.evaluate(_DRAW, [figure.to_json(), width])
        return list(self.page.evaluate(_CLASHES))

    def close(self) -> None:
        self.page.close()

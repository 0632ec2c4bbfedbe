"""What a page shows of the plotly figures in a notebook's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.browser.lab import LabNotebook

_DRAWN = """figure => {
  const box = figure.closest('.jp-OutputArea-output').getBoundingClientRect();
  const svg = figure.querySelector('svg.main-svg')?.getBoundingClientRect();
  return {
    width: svg?.width ?? 0, height: svg?.height ?? 0, box: box.width,
    marks: figure.querySelectorAll('.mlayer path, .mlayer rect, .mlayer image').length,
  };
}"""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """How large a figure is, how wide its box, and how much is drawn in it."""

    width: float
    height: float
    box: float
    marks: int

    @property
    def fits(self) -> bool:
        return 0 < self.width <= self.box + 1 and self.height > 0


def drawn_figures(lab: LabNotebook) -> list[Drawn]:
    """Look at every figure: JupyterLab draws what is scrolled to."""
    figures = lab.outputs.locator(".js-plotly-plot")
    drawn = []
    for index in range(lab.num_figures):
        figure = figures.nth(index)
        figure.scroll_into_view_if_needed()
        figure.locator("svg.main-svg").first.wait_for()
        lab.settle()
        drawn.append(Drawn(**figure.evaluate(_DRAWN)))
    return drawn


def buttons(lab: LabNotebook) -> set[str]:
    """Titles of every button over every figure."""
    found = lab.outputs.locator(".modebar-btn")
    return set(found.evaluate_all("all => all.map(one => one.dataset.title)"))

"""What a page shows of the plotly figures in a notebook's outputs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Locator

    from tests.browser.lab import LabNotebook

# For a figure to follow its box, which JupyterLab's renderer observes; one test has a
# figure that never does.
_PATIENCE_SECONDS = 20
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
    """Measure every figure, as soon as it fits its box or has had the time to."""
    return [_settled(figure) for figure in _scrolled_to(lab)]


def _settled(figure: Locator) -> Drawn:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        drawn = Drawn(**figure.evaluate(_DRAWN))
        if (drawn.fits and drawn.marks) or time.monotonic() > deadline:
            return drawn
        figure.page.wait_for_timeout(50)


def _scrolled_to(lab: LabNotebook) -> Iterator[Locator]:
    """Give every figure while it is on the screen: JupyterLab draws it only then."""
    figures = lab.outputs.locator(".js-plotly-plot")
    for index in range(lab.num_figures):
        figure = figures.nth(index)
        figure.scroll_into_view_if_needed()
        figure.locator("svg.main-svg").first.wait_for()
        lab.settle()
        yield figure


def buttons(lab: LabNotebook) -> set[str]:
    """Titles of every button over every figure."""
    for figure in _scrolled_to(lab):
        figure.locator(".modebar-btn").first.wait_for(state="attached")
    found = lab.outputs.locator(".modebar-btn")
    return set(found.evaluate_all("all => all.map(one => one.dataset.title)"))

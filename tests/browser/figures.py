"""What a page shows of the plotly figures in a notebook's outputs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from playwright.sync_api import Locator

from tests.browser.lab import LabNotebook

# For a figure to follow its box, which JupyterLab's renderer observes.
_PATIENCE_SECONDS = 20
_DRAWN = """figure => {
  const box = figure.closest('.jp-OutputArea-output').getBoundingClientRect();
  const svg = figure.querySelector('svg.main-svg')?.getBoundingClientRect();
  return {
    width: svg?.width ?? 0, height: svg?.height ?? 0, box: box.width,
    marks: figure.querySelectorAll('.mlayer path, .mlayer rect, .mlayer image').length,
    follows: figure.layout.autosize !== false,
    buttons: Array.from(figure.querySelectorAll('.modebar-btn'), one =>
      one.dataset.title),
  };
}"""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """How large a figure is, how wide its box, how much is drawn in it; its buttons.

    A figure without `autosize` does not follow its box.
    """

    width: float
    height: float
    box: float
    marks: int
    follows: bool
    buttons: list[str]

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
        is_settled = drawn.marks and drawn.buttons and (drawn.fits or not drawn.follows)
        if is_settled or time.monotonic() > deadline:
            return drawn
        figure.page.wait_for_timeout(50)


def _scrolled_to(lab: LabNotebook) -> Iterator[Locator]:
    """Give every figure while it is on the screen: JupyterLab draws it only then."""
    figures = lab.outputs.locator(".js-plotly-plot:not(.rdx *)")  # not an explorer's
    for index in range(lab.num_figures):
        figure = figures.nth(index)
        figure.scroll_into_view_if_needed()
        figure.locator("svg.main-svg").first.wait_for()
        lab.settle()
        yield figure

"""Figures in JupyterLab take its theme: they look as if they had been made with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import IMPORTS
from tests.browser.lab import LabNotebook, Theme

# Without a theme, and with a place for one.
PLOTS = (
    "rd.plot_rounds(batch{})",
    "rd.plot_rounds(batch, by='status'{})",
    "rd.plot_heatmap(batch{})",
    "rd.plot_trajectory(batch, sample=3{})",
    "rd.plot_tail(batch{})",
    "rd.plot_probabilities(batch{})",
    "rd.plot_compare([batch, batch]{})",
    "rd.plot_finding(rd.diagnose(batch)[0]{})",
)
CELLS = [plot.format(more) for plot in PLOTS for more in ("", ", theme='dark'")]
# Of all that plotly gave a colour, but what has the colours of a scale.
_COLORS = """figure => {
  const shown = [...figure.querySelectorAll('svg, svg :is(text, tspan, path, rect)')];
  const drawn = shown.filter(one => !one.matches('.cbfill, .drag, clipPath *'));
  return drawn.map(one => {
    const { fill, stroke, strokeWidth: width, backgroundColor } = getComputedStyle(one);
    return [one.tagName, fill, width === '0px' ? 'none' : stroke, backgroundColor]
      .join(' ').replace(/url.*?[)]/, 'hatched');
  });
}"""


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    cells = (IMPORTS.format(root=str(ROOT)), *CELLS)
    with next_cells("figures.ipynb", *cells) as opened:
        opened.run_all()
        yield opened
        opened.set_theme("light")


def figure(lab: LabNotebook, index: int) -> Locator:
    """Return the figure of a cell, as soon as it is drawn."""
    cell = lab.page.locator(
        f".jp-Notebook .jp-Cell[data-windowed-list-index='{index}']"
    )
    cell.scroll_into_view_if_needed()
    found = cell.locator(".js-plotly-plot")
    expect(found.locator("svg.main-svg").first).to_be_visible()
    return found


@pytest.fixture(scope="module")
def colors(lab: LabNotebook) -> dict[str, list[list[str]]]:
    """Return the colours of the figure of each cell, in either theme."""
    found: dict[str, list[list[str]]] = {}
    themes: tuple[Theme, ...] = ("light", "dark")
    for theme in themes:
        lab.set_theme(theme)
        found[theme] = []
        for index in range(len(CELLS)):
            found[theme].append(figure(lab, 1 + index).evaluate(_COLORS))
            if theme == "dark" and index % 2 == 0:
                lab.screenshot(f"figure_dark_{index // 2}")
    return found


@pytest.mark.parametrize("number", range(len(PLOTS)), ids=PLOTS)
def test_in_the_dark_it_is_the_dark_figure(
    colors: dict[str, list[list[str]]], number: int
) -> None:
    light, followed = (colors[theme][2 * number] for theme in ("light", "dark"))
    assert followed == colors["dark"][2 * number + 1]
    assert light != followed


@pytest.mark.parametrize("number", range(len(PLOTS)), ids=PLOTS)
def test_a_theme_that_was_chosen_stays(
    colors: dict[str, list[list[str]]], number: int
) -> None:
    before = colors["light"][2 * number + 1]
    assert "rgb(17, 17, 17)" in before[0]
    assert colors["dark"][2 * number + 1] == before

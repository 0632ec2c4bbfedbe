"""Every notebook of the project, run by a person's JupyterLab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.browser.figures import drawn_figures
from tests.browser.lab import LabNotebook, Theme

NOTEBOOKS = sorted(
    path.name for path in (Path(__file__).parents[2] / "notebooks").glob("*.ipynb")
)


# Every other one in the dark: a change of the theme draws all figures again.
THEMES: list[Theme] = ["light", "dark"]
WIDTHS = (1280, 500)


@pytest.fixture(scope="module", params=enumerate(NOTEBOOKS), ids=NOTEBOOKS)
def executed(
    request: pytest.FixtureRequest,
    next_notebook: Callable[[str], AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    number, name = request.param
    with next_notebook(f"notebooks/{name}") as lab:
        lab.set_theme(THEMES[number % 2])
        lab.run_all()
        yield lab


def test_it_runs_to_the_end(executed: LabNotebook) -> None:
    assert executed.errors == []
    assert executed.console_errors == []


def test_every_figure_is_drawn_inside_its_box_without_an_upload_button(
    executed: LabNotebook, request: pytest.FixtureRequest
) -> None:
    for width in WIDTHS:
        executed.set_width(width)
        figures = drawn_figures(executed)
        executed.screenshot(f"{request.node.name}-{width}-{executed.theme}")
        assert [drawn for drawn in figures if not (drawn.fits and drawn.marks)] == []
        assert all(figure.buttons for figure in figures)
        titles = {title for figure in figures for title in figure.buttons}
        assert [
            title for title in titles if "Share" in title or "Studio" in title
        ] == []


def test_it_has_figures(executed: LabNotebook) -> None:
    in_explorer = executed.page.locator(".rdx-plot").count()
    assert executed.num_figures + in_explorer > 0


def test_nothing_is_asked_of_another_machine(executed: LabNotebook) -> None:
    assert executed.strangers == []

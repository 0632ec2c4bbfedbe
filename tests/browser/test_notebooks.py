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


LOOKS: list[tuple[int, Theme]] = [(1280, "light"), (500, "dark")]


@pytest.fixture(scope="module", params=NOTEBOOKS)
def executed(
    request: pytest.FixtureRequest,
    next_notebook: Callable[[str], AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_notebook(f"notebooks/{request.param}") as lab:
        lab.run_all()
        yield lab


def test_it_runs_to_the_end(executed: LabNotebook) -> None:
    assert executed.errors == []
    assert executed.console_errors == []


def test_every_figure_is_drawn_inside_its_box_without_an_upload_button(
    executed: LabNotebook, request: pytest.FixtureRequest
) -> None:
    for width, theme in sorted(LOOKS, key=lambda look: look[1] != executed.theme):
        executed.set_theme(theme)
        executed.set_width(width)
        figures = drawn_figures(executed)
        executed.screenshot(f"{request.node.name}-{width}-{theme}")
        assert [one for one in figures if not (one.fits and one.marks)] == []
        assert all(figure.buttons for figure in figures)
        titles = {title for figure in figures for title in figure.buttons}
        assert [
            title for title in titles if "Share" in title or "Studio" in title
        ] == []


def test_it_has_figures(executed: LabNotebook) -> None:
    assert executed.num_figures > 0


def test_nothing_is_asked_of_another_machine(executed: LabNotebook) -> None:
    assert executed.strangers == []

"""The browser tests would notice: a notebook in which everything goes wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Error

from tests.browser.figures import drawn_figures
from tests.browser.lab import ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.browser.lab import LabNotebook

CELLS = [
    "import plotly.graph_objects as go\ngo.Figure(go.Scatter(y=[1, 3, 2]))",
    "go.Figure(go.Bar(y=[1, 2]), layout={'width': 3000, 'autosize': False})",
    "from IPython.display import HTML\nHTML('<img src=\"http://192.0.2.1/x.png\">')",
    "answer = [6 * 7, 'näh']",
    "raise ValueError('went wrong')",
    "never = 'reached'",
]


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_cells("bad.ipynb", *CELLS) as opened:
        opened.run_all()
        yield opened


def test_a_page_that_never_answers_ends_a_test(lab: LabNotebook) -> None:
    with pytest.raises(Error, match=r"has not answered within 0\.2 s"):
        ask(lab.page, "() => new Promise(() => {})", seconds=0.2)
    assert ask(lab.page, "async one => one + 1", 1) == 2


def test_a_traceback_is_seen(lab: LabNotebook) -> None:
    assert lab.errors == ["ValueError: went wrong"]


def test_a_figure_wider_than_its_box_is_seen(lab: LabNotebook) -> None:
    assert lab.num_figures == 2
    assert [figure.fits for figure in drawn_figures(lab)] == [True, False]


def test_a_narrow_window_makes_the_box_narrow(lab: LabNotebook) -> None:
    lab.set_width(500)
    assert all(figure.box < 500 for figure in drawn_figures(lab))


def test_the_upload_button_of_plotly_is_seen(lab: LabNotebook) -> None:
    assert "Share chart..." in drawn_figures(lab)[0].buttons


def test_a_request_to_another_machine_is_seen(lab: LabNotebook) -> None:
    assert set(lab.strangers) == {"http://192.0.2.1/x.png"}


def test_values_of_the_kernel_arrive(lab: LabNotebook) -> None:
    assert lab.value("answer") == [42, "näh"]
    with pytest.raises(RuntimeError, match="`never` failed in the kernel"):
        lab.value("never")

"""An explorer's life: shown in every way, run again, reloaded, its kernel lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import (
    IMPORTS,
    explorer,
    press,
    rest,
    saved,
    waits_for,
)
from tests.browser.lab import LabNotebook

NAME = "life.ipynb"
# All open at the evidence of a diagnosis that is known: one that comes later leaves an
# explorer where it is, or not, as its time allows.
CELLS = [
    IMPORTS.format(root=str(ROOT)) + "\nimport ipywidgets\nrd.diagnose(batch)",
    "first = rd.explore(batch)\nfirst",
    "print('before')\nsecond = rd.explore(batch, metric='diff')\ndisplay(second)",
    "print('outside')\nbox = ipywidgets.Output()\nwith box:\n    print('inside')\n"
    "    third = rd.explore(batch)\n    display(third)\nbox",
]
LIBRARIES = "head > script[src^='blob:']"


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_cells(NAME, *CELLS, own_kernel=True) as opened:
        opened.run_all()
        # A notebook that is opened again takes no new picture for an old output.
        waits_for(
            opened,
            "None in [first._preview._picture, second._preview._picture]",
            value=False,
        )
        yield opened
        assert opened.console_errors == []


def title(node: Locator) -> str:
    """Return which sample is shown, be the cell on the screen or not."""
    return node.locator(".rdx-title").text_content() or ""


def outputs(lab: LabNotebook, cell: int) -> Locator:
    cells = lab.page.locator(".jp-NotebookPanel:visible .jp-CodeCell")
    return cells.nth(cell).locator(".jp-OutputArea-child")


def shown(found: Locator) -> list[bool]:
    return [one.is_visible() for one in found.all()]


def test_all_explorers_of_a_page_share_one_library(lab: LabNotebook) -> None:
    assert lab.page.locator(".rdx:not([data-waiting])").count() == 3
    assert lab.page.locator(LIBRARIES).count() == 1


def test_an_explorer_does_not_hear_the_others(lab: LabNotebook) -> None:
    first, second = explorer(lab), explorer(lab, 1)
    before = title(first)
    assert title(second) == before
    places = lab.value("[first.current, third.current]")
    press(lab, second, "G")
    waits_for(lab, "second.current == first.current", value=False)
    assert title(second) != before
    assert title(first) == title(explorer(lab, 2)) == before
    assert lab.value("[first.current, third.current]") == places


def test_only_its_own_picture_is_hidden(lab: LabNotebook) -> None:
    assert shown(outputs(lab, 1)) == [False, True]
    assert shown(outputs(lab, 2)) == [True, False, True]
    # The box, and in it a line, the picture, the explorer.
    assert shown(outputs(lab, 3)) == [True, True, True, False, True]


def test_a_reload_brings_back_what_was_seen(lab: LabNotebook, lab_folder: Path) -> None:
    first = explorer(lab)
    press(lab, first, "jjp")
    first.get_by_role("radio", name="signed").check(force=True)
    waits_for(lab, "first.state['metric']", "diff")
    place, text = lab.value("first.current"), title(first)
    lab.value("setattr(first, 'state', {'threshold': 0.25})")
    saved(lab, lab_folder / NAME)
    lab.page.reload()
    lab.wait_for_kernel()
    again = explorer(lab)
    assert title(again) == text
    expect(again.get_by_role("radio", name="signed")).to_be_checked()
    expect(again.get_by_role("spinbutton", name="threshold")).to_have_value("0.25")
    expect(again.locator(".rdx-strip [aria-current='true']")).to_have_attribute(
        "data-round", str(place["round"])
    )
    assert lab.value("first.current") == place
    assert lab.value("str(first.last_error)") == "None"


def test_a_cell_that_runs_again_closes_what_it_showed(lab: LabNotebook) -> None:
    lab.value("globals().update(old=first, old_view=first._view)")
    lab.run_cell(1)
    explorer(lab)
    assert lab.page.locator(".rdx").count() == 3
    assert lab.value("[old_view.comm is None, old._view is None]") == [True, True]
    assert lab.value("second._view.comm is None") is False


def test_a_closed_explorer_leaves_its_picture(lab: LabNotebook) -> None:
    picture = outputs(lab, 2).nth(1).locator("img")
    expect(picture).to_be_hidden()
    lab.value("second.close()")
    expect(lab.page.locator(".rdx")).to_have_count(2)
    expect(picture).to_be_visible()
    lab.value("second.close()")


def test_without_its_kernel_it_keeps_what_it_shows_and_says_so(
    lab: LabNotebook,
) -> None:
    first = explorer(lab)
    waits_for(lab, "first.state['finding']", 0)  # where its diagnosis leads it
    rest(lab)
    text = title(first)
    lab.page.evaluate(
        "jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
    )
    expect(first.get_by_text("The kernel is gone")).to_be_visible()
    # Not "j" and "k": the samples beside this one may have been read ahead.
    press(lab, first, "npwt")
    lab.settle()
    assert title(first) == text
    expect(first.locator(".rdx-plot svg.main-svg").first).to_be_visible()
    lab.wait_for_kernel()
    lab.run_all()
    again = explorer(lab)
    expect(again.get_by_text("The kernel is gone")).to_be_hidden()


def test_after_a_shutdown_the_first_key_tells(lab: LabNotebook) -> None:
    first = explorer(lab)
    lab.page.evaluate("jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    press(lab, first, "nw")
    expect(first.get_by_text("The kernel is gone")).to_be_visible()

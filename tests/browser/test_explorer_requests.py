"""What an explorer asks of its kernel: what is in sight, and what a click will need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import ROOT
from tests.browser.explored import at
from tests.browser.explorers import IMPORTS, explorer, press, rest, waits_until
from tests.browser.lab import LabNotebook

# Notes what the page asks for, from the first request on.
_EXPLORER = """from tests.browser.replies import replies_of, reply_with
current = {"sample": 20, "round": 0}
ex = rd.explore(batch, order="sample", current=current)
asked, answers = [], replies_of(ex)
def noted(name):
    def answer(**args):
        asked.append([name, args["sample"], args.get("indices")])
        return answers[name](**args)
    return answer
for name in ("trajectory", "thumbnails"):
    reply_with(ex, name, noted(name))
ex"""


@pytest.fixture
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    cells = (IMPORTS.format(root=str(ROOT)), _EXPLORER)
    with next_cells("requests.ipynb", *cells) as opened:
        opened.run_all()
        # The verdict, which comes last, gives all panes other heights.
        expect(explorer(opened).get_by_text("diagnosing…")).to_have_count(0)
        rest(opened)
        yield opened


def asked(lab: LabNotebook, name: str) -> list[Any]:
    """Return sample and screenshots of each request of a kind."""
    return [rest for kind, *rest in lab.value("asked") if kind == name]


def test_where_the_pointer_rests_the_sample_is_there_before_a_click(
    lab: LabNotebook,
) -> None:
    assert asked(lab, "trajectory") == [[20, None]]
    node = explorer(lab)
    heatmap = node.get_by_label("Samples", exact=True)
    rest(lab)  # a figure that is drawn meanwhile would miss the pointer
    lab.page.mouse.move(*at(heatmap, 0, 12))
    lab.page.mouse.move(*at(heatmap, 1, 12))
    waits_until(lambda: [12, None] in asked(lab, "trajectory"))
    lab.page.mouse.click(*at(heatmap, 1, 12))
    expect(node.locator(".rdx-title")).to_contain_text("Sample 12 ·")
    assert asked(lab, "trajectory") == [[20, None], [12, None]]


def test_who_steps_through_samples_finds_the_next_one_there(lab: LabNotebook) -> None:
    node = explorer(lab)
    press(lab, node, "j")
    waits_until(lambda: len(asked(lab, "trajectory")) == 3)
    assert asked(lab, "trajectory") == [[20, None], [21, None], [22, None]]


def test_only_screenshots_in_sight_are_fetched(lab: LabNotebook) -> None:
    assert asked(lab, "thumbnails") == [[20, [0, 1, 2]]]
    node = explorer(lab)
    press(lab, node, "nnnn")
    rest(lab)
    assert asked(lab, "thumbnails") == [[20, [0, 1, 2]], [20, [3, 4, 5]]]
    lab.set_width(1600)  # the cards of the rounds have pictures now
    expect(node.locator(".rdx-card img")).to_have_count(
        node.locator(".rdx-card").count()
    )

"""Filters that keep nothing or are wrong, and cells that are not there."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import rounddiag as rd
from rounddiag.figures._parts.canvas import LIGHT
from tests.browser.explored import Explored, at
from tests.browser.explorers import waits_for

NOTHING = "the filter keeps no token"


@pytest.fixture
def without(explored: Explored, seen: rd.Batch) -> tuple[int, int]:
    """Return a sample with fewer rounds than others, and a round that it lacks."""
    last = rd.round_frame(seen).groupby("sample")["round"].max()
    sample = next(one for one in explored.rows()[5:] if last[one] < last.max())
    return sample, int(last[sample]) + 1


def test_a_click_on_a_cell_that_is_not_there_says_so_and_moves_nothing(
    explored: Explored, without: tuple[int, int]
) -> None:
    sample, round_ = without
    before = explored.state
    explored.click(explored.heatmap, round_, explored.rows().index(sample))
    chosen = explored.find(".rdx-chosen")
    expect(chosen).to_have_text(f"sample {sample} has no round {round_}")
    explored.rest()
    assert explored.state == before
    explored.is_at(*before["current"].values())
    expect(explored.find(".rdx-banner")).to_be_hidden()
    explored.click(explored.heatmap, 0, explored.rows().index(sample))
    expect(chosen).to_have_text("")
    waits_for(explored.lab, "ex.current['sample']", sample)


def test_a_box_over_cells_that_are_not_there_selects_nothing(
    explored: Explored, without: tuple[int, int]
) -> None:
    sample, round_ = without
    chosen = explored.find(".rdx-chosen")
    explored.drag(explored.heatmap, (2, 3), (4, 6))
    expect(chosen).to_contain_text("rounds")
    row = explored.rows().index(sample)
    explored.drag(explored.heatmap, (round_ - 0.4, row), (round_ + 0.4, row))
    cells = {"samples": [sample], "rounds": [round_, round_]}
    explored.knows("cells", cells)
    expect(chosen).to_have_text("nothing selected: these samples have no such rounds")
    assert explored.lab.value("len(ex.selection)") == 0
    explored.press("Escape")
    explored.knows("cells", None)
    expect(chosen).to_have_text("")
    expect(explored.find(".rdx-cell-box:visible")).to_have_count(0)


def test_an_incomplete_expression_is_reported_at_its_field_and_the_last_one_counts(
    explored: Explored,
) -> None:
    text, wrong = explored.field("text"), explored.find(".rdx-filter > .rdx-wrong")
    explored.find(".rdx-filter .rdx-toggle").click()
    text.fill("click")
    explored.knows("filter", {"text": {"regex": "click"}})
    num = explored.lab.value("len(ex.selection)")
    text.fill("click(")
    expect(wrong).to_contain_text(
        "text: expected a regular expression in the syntax of"
    )
    expect(text).to_have_attribute("aria-invalid", "true")
    assert "missing )" in explored.lab.value("str(ex.last_error)")
    assert explored.state["filter"] == {"text": {"regex": "click"}}
    assert explored.lab.value("len(ex.selection)") == num
    text.fill(r"click\(")
    expect(wrong).to_be_hidden()
    expect(text).to_have_attribute("aria-invalid", "false")
    waits_for(explored.lab, "ex.state['filter']['text']", {"regex": r"click\("})


def test_where_the_filter_keeps_nothing_every_part_says_that(
    explored: Explored,
) -> None:
    explored.drag(explored.heatmap, (2, 3), (4, 6))
    chosen = explored.find(".rdx-chosen")
    expect(chosen).to_contain_text("rounds")
    explored.field("text").fill("no such words")
    expect(explored.find(".rdx-beyond")).to_have_text(NOTHING)
    titles = explored.find(".rdx-overview .annotation-text")
    for index in (0, 1):
        expect(titles.nth(index)).to_contain_text(NOTHING)
    explored.open_list("Rounds")
    expect(explored.find(".rdx-list-rows")).to_have_text(NOTHING)
    expect(chosen).to_have_text(f"nothing selected: {NOTHING} of these cells")
    explored.find(".rdx-filter-chips > button").click()
    expect(chosen).to_contain_text("rounds")
    expect(titles.filter(has_text=NOTHING)).to_have_count(0)


def test_bands_at_the_heatmap_have_the_colors_of_the_lines(
    explored: Explored, seen: rd.Batch
) -> None:
    bands = explored.find(".rdx-bands")
    expect(bands).to_be_hidden()
    explored.set("{'by': 'status'}")
    expect(bands).to_be_visible()
    assert seen.sample_columns is not None
    status = seen.sample_columns["status"]
    colors = dict(zip(sorted(set(status)), LIGHT.lines, strict=False))
    drawn = bands.evaluate("node => getComputedStyle(node).backgroundImage")
    found = re.findall(r"rgb\((\d+), (\d+), (\d+)\) 0", drawn)
    assert ["#" + "".join(f"{int(one):02x}" for one in rgb) for rgb in found] == [
        colors[status[sample]] for sample in explored.rows()
    ]
    box, first = bands.bounding_box(), at(explored.heatmap, -0.5, -0.5)
    assert box is not None
    assert box["x"] + box["width"] <= first[0]
    assert box["y"] == pytest.approx(first[1], abs=1)

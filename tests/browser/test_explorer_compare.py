"""Two batches in one explorer, as a person compares them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from rounddiag.figures._parts.labels import format_number
from tests.browser.conftest import ROOT
from tests.browser.explorers import (
    IMPORTS,
    explorer,
    press,
    rest,
    waits_for,
)
from tests.browser.lab import LabNotebook, Theme

NAME = "compare.ipynb"
FIRST, SECOND = "healthy.parquet", "image_window.parquet"
HOSTILE = "<img src=x onerror=alert(1)>\u202e"
CELLS = [
    IMPORTS.format(root=str(ROOT)) + "\nfrom dataclasses import replace",
    f"ex = rd.explore([{str(ROOT / 'sample_data')!r} + '/{FIRST}', batch])\nex",
    f"apart = rd.explore({{{HOSTILE!r}: batch, 'b': replace(batch, sample_ids=None)}})"
    "\napart",
]
# Where a cell is on the screen, and what the heatmap shows.
_CENTRE = """(node, [row, column]) => {
  const { xaxis, yaxis } = node._fullLayout;
  const { left, top } = node.getBoundingClientRect();
  const [across, down] = [xaxis.l2p(column), yaxis.l2p(row)];
  return [left + xaxis._offset + across, top + yaxis._offset + down];
}"""
_SHOWN = """node => ({
  samples: node.layout.meta?.samples,
  ends: node.data[0] && [node.data[0].zmin, node.data[0].zmax],
  ticks: node.data.at(-1)?.marker.colorbar.ticktext,
  label: node.layout.meta?.notes[0],
})"""


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_cells(NAME, *CELLS) as opened:
        opened.run_all()
        yield opened
        assert (opened.console_errors, opened.errors) == ([], [])
        assert opened.strangers == []


@pytest.fixture
def page(lab: LabNotebook) -> Locator:
    """The explorer as it opens."""
    first = {
        "batch": 1,
        "heatmap": "difference",
        "filter": {},
        "current": {"sample": 35, "round": 4, "token": 3},
    }
    lab.value(f"setattr(ex, 'state', {first})")
    found = explorer(lab)
    rest(lab, was_asked=True)
    expect(radio(found, "Heatmap of", 2)).to_be_checked()
    expect(found.locator(".rdx-title")).to_contain_text(f"Sample 35 of {SECOND}")
    return found


def radio(page: Locator, group: str, place: int) -> Locator:
    return page.get_by_role("radiogroup", name=group).get_by_role("radio").nth(place)


def heatmap(page: Locator) -> Locator:
    return page.get_by_label("Samples", exact=True).locator(".rdx-plot")


def shown(page: Locator) -> dict[str, Any]:
    found: dict[str, Any] = heatmap(page).evaluate(_SHOWN)
    return found


def click_cell(lab: LabNotebook, page: Locator, row: int, column: int) -> None:
    heatmap(page).scroll_into_view_if_needed()
    lab.page.mouse.click(*heatmap(page).evaluate(_CENTRE, [row, column]))


def test_it_opens_at_what_there_is_most_more_of_in_the_second(
    lab: LabNotebook,
) -> None:
    page = explorer(lab)
    assert lab.value("[ex.state['batch'], ex.state['heatmap']]") == [1, "difference"]
    expect(radio(page, "Active batch", 1)).to_be_checked()
    expect(page.locator(".rdx-pairs")).to_have_text(
        "64 samples of both, paired by sample id"
    )
    expect(page.locator(".rdx-title")).to_contain_text(f"Sample 8 of {SECOND}")
    assert shown(page)["label"].startswith("colour: difference of mean |old − rollout|")
    names = page.locator(".rdx-compared label").all_inner_texts()
    assert names == [FIRST, SECOND, FIRST, SECOND, "difference"]


def test_either_batch_has_its_heatmap_in_one_range_and_order(
    lab: LabNotebook, page: Locator
) -> None:
    found = []
    for place, name in enumerate((FIRST, SECOND)):
        radio(page, "Heatmap of", place).check()
        expect(page.locator(".rdx-title")).to_contain_text(f"of {name}")
        expect(page.locator(".rdx-name h3")).to_have_text(name)
        expect(radio(page, "Active batch", place)).to_be_checked()
        waits_for(lab, "[ex.state['batch'], ex.state['heatmap']]", [place, "batch"])
        found.append(shown(page))
    first, second = found
    assert first["samples"] == second["samples"]
    assert first["ends"] == second["ends"]
    assert first["ticks"][-1] == second["ticks"][-1] == "3"
    radio(page, "Heatmap of", 2).check()
    waits_for(lab, "ex.state['heatmap']", "difference")
    expect(page.locator(".rdx-title")).to_contain_text(f"of {SECOND}")
    assert shown(page)["samples"] == first["samples"]


def test_the_other_batch_is_looked_at_where_this_one_was(
    lab: LabNotebook, page: Locator
) -> None:
    diff = page.locator(".rdx-focus")
    expect(diff).to_contain_text("+0.154 nat")
    radio(page, "Active batch", 0).check()
    expect(page.locator(".rdx-title")).to_contain_text(f"Sample 35 of {FIRST}")
    expect(diff).not_to_contain_text("+0.154 nat")
    waits_for(lab, "ex.current", {"sample": 35, "round": 4, "token": 3})
    assert lab.value("ex.state['batch']") == 0
    assert lab.value("ex.state['heatmap']") == "difference"
    assert lab.value("ex.batch is ex.batches['healthy.parquet']")
    assert lab.value("len(ex.selection)") == 18


def test_a_click_on_a_difference_goes_there_in_the_batch_that_is_looked_at(
    lab: LabNotebook, page: Locator
) -> None:
    row = 3
    for batch, name in ((1, SECOND), (0, FIRST)):
        radio(page, "Active batch", batch).check()
        expect(page.locator(".rdx-title")).to_contain_text(f"of {name}")
        sample = shown(page)["samples"][row + batch]
        click_cell(lab, page, row + batch, 2)
        expect(page.locator(".rdx-title")).to_contain_text(f"Sample {sample} of {name}")
        waits_for(lab, "[ex.current['sample'], ex.current['round']]", [sample, 2])
        assert lab.value("ex.state['batch']") == batch


def test_a_click_and_a_switch_right_after_it_both_count(
    lab: LabNotebook, page: Locator
) -> None:
    sample = shown(page)["samples"][0]
    click_cell(lab, page, 0, 1)
    expect(page.locator(".rdx-title")).to_contain_text(f"Sample {sample} of {SECOND}")
    radio(page, "Active batch", 0).check()
    expect(page.locator(".rdx-title")).to_contain_text(f"Sample {sample} of {FIRST}")
    waits_for(lab, "[ex.current['sample'], ex.current['round']]", [sample, 1])
    lab.page.wait_for_timeout(200)
    assert lab.value("ex.state['batch']") == 0


def test_the_list_is_of_the_largest_differences(
    lab: LabNotebook, page: Locator
) -> None:
    page.get_by_role("tab", name="Rounds", exact=True).click()
    heads, first = page.locator(".rdx-list-head"), page.locator(".rdx-list-rows button")
    expect(heads).to_contain_text("difference [nat]")
    press(lab, page, "w")
    expect(first.first).to_have_attribute("aria-current", "true")
    row = lab.value("ex._session.difference.worst['rounds'].iloc[0].to_dict()")
    place = [row["sample"], row["round"]]
    waits_for(lab, "[ex.current['sample'], ex.current['round']]", place)
    expect(first.first).to_contain_text(f"+{format_number(row['difference'])}")
    radio(page, "Heatmap of", 1).check()
    expect(heads).to_contain_text("mean |diff| [nat]")
    page.get_by_role("tab", name="Rounds", exact=True).click()


def test_keys_walk_through_the_switches(lab: LabNotebook, page: Locator) -> None:
    radio(page, "Heatmap of", 2).focus()
    lab.page.keyboard.press("ArrowLeft")
    waits_for(lab, "[ex.state['batch'], ex.state['heatmap']]", [1, "batch"])
    expect(radio(page, "Heatmap of", 1)).to_be_focused()
    lab.page.keyboard.press("ArrowLeft")
    waits_for(lab, "[ex.state['batch'], ex.state['heatmap']]", [0, "batch"])
    expect(page.locator(".rdx-title")).to_contain_text(f"of {FIRST}")


def test_means_of_both_are_drawn_and_their_parts_can_be_left_out(
    lab: LabNotebook, page: Locator
) -> None:
    pane = page.get_by_label("Rounds", exact=True)
    rounds = pane.locator(".rdx-plot")
    notes = pane.locator(".rdx-notes")
    expect(notes).to_contain_text(f"{SECOND}: paired, 64 samples")
    expect(rounds).to_contain_text(SECOND)
    expect(rounds).to_contain_text("difference of means")
    page.get_by_label(
        "Other metrics, order, correction, colours, scores, axis and layers", exact=True
    ).click()
    page.get_by_label("difference", exact=True).and_(
        page.locator("[type=checkbox]")
    ).uncheck()
    expect(rounds).not_to_contain_text("difference of means")
    waits_for(lab, "ex.state['layers']", {"difference": False})
    lab.value("setattr(ex, 'state', {'layers': {}})")
    expect(rounds).to_contain_text("difference of means")


def test_python_switches_too(lab: LabNotebook, page: Locator) -> None:
    lab.value("setattr(ex, 'state', {'batch': 0, 'heatmap': 'batch', 'metric': 'k3'})")
    expect(radio(page, "Heatmap of", 0)).to_be_checked()
    expect(page.get_by_label("Other metrics").locator("[value=k3]")).to_be_checked()
    expect(page.locator(".rdx-title")).to_contain_text(f"of {FIRST}")
    lab.value("setattr(ex, 'state', {'metric': 'abs_diff'})")
    expect(radio(page, "Metric", 0)).to_be_checked()


def test_batches_without_ids_say_why_there_is_no_difference(lab: LabNotebook) -> None:
    page = explorer(lab, 1)
    expect(radio(page, "Heatmap of", 1)).to_be_checked()
    why = "samples are not paired: no `sample_ids` in b"
    expect(page.locator(".rdx-pairs")).to_have_text(why.replace("`", ""))
    place = lab.value("apart.current")
    radio(page, "Heatmap of", 2).check()
    expect(heatmap(page)).to_contain_text(why)
    heatmap(page).click()
    page.get_by_role("tab", name="Samples", exact=True).click()
    expect(page.locator(".rdx-list-rows")).to_contain_text("do not differ")
    assert lab.value("apart.current") == place
    assert lab.value("str(apart.last_error)") == "None"
    expect(page.locator(".rdx-banner")).to_be_hidden()


def test_names_are_text(lab: LabNotebook) -> None:
    page = explorer(lab, 1)
    label = page.locator(".rdx-compared label").first
    expect(label).to_have_text("<img src=x onerror=alert(1)>⟨U+202E⟩")
    radio(page, "Active batch", 0).check()
    title = page.locator(".rdx-title")
    expect(title).to_contain_text("<img src=x onerror=alert(1)>⟨U+202E⟩")
    assert page.locator("img[src=x]").count() == 0


@pytest.mark.parametrize(("width", "theme"), [(1600, "light"), (500, "dark")])
def test_it_fits(lab: LabNotebook, page: Locator, width: int, theme: Theme) -> None:
    lab.set_theme(theme)
    lab.set_width(width)
    expect(page).to_have_attribute("data-theme", theme)
    for place in (2, 0, 1):
        radio(page, "Heatmap of", place).check()
        waits_for(lab, "ex.state['heatmap']", "difference" if place == 2 else "batch")
        lab.settle()
        for row in page.locator(".rdx-compared").all():
            box, around = row.bounding_box(), page.bounding_box()
            assert box is not None
            assert around is not None
            assert box["x"] + box["width"] <= around["x"] + around["width"] + 1
        heatmap(page).scroll_into_view_if_needed()
        lab.screenshot(f"explorer_compare_{place}_{width}_{theme}")
    lab.set_width(1280)
    lab.set_theme("light")

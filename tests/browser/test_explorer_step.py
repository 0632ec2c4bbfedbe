"""A batch of the size of a real step: from opening it to what is wrong, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import ROOT
from tests.browser.explorers import explorer, go_to_evidence, rest, waits_until
from tests.browser.lab import LabNotebook
from tests.browser.planted import FIRST_ROUND, NUM_RANKS, NUM_SAMPLES, RANK
from tests.browser.test_explorer_layout import (
    AREA,
    PANES,
    box_of,
    is_inside,
)

CELLS = [
    f"""import sys
from functools import partial
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
import rounddiag as rd
from tests.browser.planted import planted
batch = planted(Path({str(ROOT)!r}) / "sample_data" / "tokenizer.json")""",
    "ex = rd.explore(batch)\nex",
]


@pytest.fixture(scope="module")
def lab(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[LabNotebook]:
    with next_cells("step.ipynb", *CELLS) as opened:
        opened.command("application:toggle-left-area")  # as it is by default
        opened.page.set_viewport_size({"width": 1280, "height": 800})
        opened.run_all()
        go_to_evidence(opened, explorer(opened))
        yield opened
        assert (opened.console_errors, opened.errors) == ([], [])


@pytest.fixture
def page(lab: LabNotebook) -> Locator:
    """The explorer, at the top of the area, at the evidence."""
    found = explorer(lab)
    found.evaluate("node => node.scrollIntoView({ block: 'start' })")
    return found


def test_it_goes_to_the_fault_with_one_click(lab: LabNotebook, page: Locator) -> None:
    assert lab.value("batch.num_tokens") == 800_000
    verdict = page.locator(".rdx-verdict[data-bad] > summary > p")
    expect(verdict).to_contain_text(
        f"coordinates, on rank {RANK}, from round {FIRST_ROUND} on"
    )
    assert verdict.evaluate("node => node.scrollHeight - node.clientHeight") <= 1
    # What else fails begins on a line of its own, and its end is visibly cut.
    others = page.locator(".rdx-verdict > summary > .rdx-others")
    expect(others).to_contain_text('(failed check "log-probs are not above 0")')
    assert others.evaluate("node => getComputedStyle(node).textOverflow") == "ellipsis"
    title = (
        page.get_by_label("Verdict", exact=True)
        .locator("summary")
        .get_attribute("title")
        or ""
    )
    assert f"{others.text_content()}\n" in title
    place = lab.value("ex.current")
    assert place["sample"] % NUM_RANKS == RANK
    assert place["round"] >= FIRST_ROUND
    expect(page.get_by_label("Token", exact=True)).to_contain_text("coordinates")
    area = box_of(lab.page.locator(AREA))
    outside = [
        name
        for name in PANES
        if not is_inside(box_of(page.get_by_label(name, exact=True)), area)
    ]
    assert outside == []
    for field in ("Search the text", "note"):
        assert box_of(page.get_by_label(field, exact=True))["width"] > 70
    lab.screenshot("explorer_step")


def test_one_click_tells_rank_role_round_and_samples(
    lab: LabNotebook, page: Locator
) -> None:
    page.get_by_role("tab", name="In common", exact=True).click()
    row = page.locator(".rdx-list-common .rdx-list-rows button").first
    faulty = (
        f"(tokens['sample'] % {NUM_RANKS} == {RANK}) & (tokens['diff'].abs() > 0.6931)"
    )
    num = lab.value(f"(lambda tokens: int(({faulty}).sum()))(rd.token_frame(batch))")
    for text in (
        f"coordinates, on rank {RANK}, from round {FIRST_ROUND} on",
        f"{num} of {num}",
        f"8 of {NUM_SAMPLES}",
    ):
        expect(row).to_contain_text(text)
    lab.screenshot("explorer_step_in_common")
    page.get_by_role("tab", name="In common", exact=True).click()


def test_by_hand_it_takes_three_choices(lab: LabNotebook, page: Locator) -> None:
    by = page.get_by_label("by", exact=True)
    first = page.locator(".rdx-group").first
    by.select_option("rank")
    expect(first).to_contain_text(f"{RANK}")
    assert first.locator("span").first.text_content() == f"{RANK}"
    first.click()
    waits_until(lambda: lab.value("ex.state['filter']") == {"rank": [RANK]})
    by.select_option("role")
    expect(first.locator("span").first).to_have_text("coordinates")
    rest(lab)
    lines: list[list[list[float]]] = page.get_by_label("Rounds", exact=True).evaluate(
        "node => node.querySelector('.rdx-plot')._fullData"
        ".filter(one => one.mode === 'lines+markers')"
        ".map(one => [[...one.x], [...one.y]])"
    )
    raised = [
        round(x)
        for x, y in min(
            ([*zip(*line, strict=True)] for line in lines),
            key=lambda line: -max(y for _, y in line),
        )
        if y > 0.1
    ]
    assert raised[0] == FIRST_ROUND
    lab.value("setattr(ex, 'state', {'by': None, 'filter': {}, 'finding': 0})")
    rest(lab)


def test_whatever_is_clicked_text_screenshot_and_token_show_it(
    lab: LabNotebook, page: Locator
) -> None:
    area = box_of(lab.page.locator(AREA))
    top = box_of(page)["y"]

    def shows(round_: int, token: int) -> None:
        mark = page.locator(".rdx-chunk > .rdx-now")
        token_fact = page.get_by_label("Token", exact=True)
        expect(token_fact).to_contain_text(f"{round_}, token {token}")
        screen = page.get_by_label("Screenshot", exact=True)
        expect(screen.locator("figcaption").first).to_contain_text(f"round {round_}")
        text = box_of(page.get_by_label("Text", exact=True))
        waits_until(lambda: is_inside(box_of(mark), text))
        assert is_inside(text, area)
        assert box_of(page)["y"] == top

    def has_moved(before: dict[str, int]) -> bool:
        return bool(lab.value("ex.current") != before)

    for list_, row in (("Tokens", 3), ("Rounds", 2), ("Findings", 0)):
        before = lab.value("ex.current")
        page.get_by_role("tab", name=list_, exact=True).click()
        page.locator(".rdx-list-rows button").nth(row).click()
        expect(page.locator(".rdx-list-rows [aria-current='true']")).to_have_count(1)
        # The page tells Python a moment later.
        waits_until(partial(has_moved, before))
        rest(lab)
        place = lab.value("ex.current")
        assert place["sample"] % NUM_RANKS == RANK
        assert place["round"] >= FIRST_ROUND
        shows(place["round"], place["token"])
        page.get_by_role("tab", name=list_, exact=True).click()
    page.locator('.rdx-card[data-round="2"]').evaluate("node => node.click()")
    waits_until(lambda: lab.value("ex.current['round']") == 2)
    shows(2, lab.value("ex.current['token']"))
    heatmap = page.get_by_label("Samples", exact=True)
    heatmap.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        lab.page.keyboard.press(key)
    waits_until(lambda: lab.value("ex.current['round']") == 4)
    shows(4, lab.value("ex.current['token']"))


def test_the_plot_of_many_tokens_is_of_one_round(
    lab: LabNotebook, page: Locator
) -> None:
    plot = page.get_by_label("Tokens", exact=True)
    rounds = "node => node.querySelector('.rdx-plot').layout.meta.rounds"
    now = lab.value("ex.current['round']")
    waits_until(lambda: plot.evaluate(rounds) == [now])
    plot.get_by_role("radio", name="all").check(force=True)
    waits_until(lambda: plot.evaluate(rounds) == [*range(25)])
    plot.get_by_role("checkbox", name="log-probs").check()
    waits_until(lambda: plot.locator(".y2tick").count() > 0)
    assert lab.value("[ex.state['scope'], ex.state['log_probs']]") == ["sample", True]
    lab.value("setattr(ex, 'state', {'scope': 'auto', 'log_probs': False})")
    waits_until(lambda: plot.evaluate(rounds) == [now])


def test_splitters_move_panes_and_are_part_of_the_state(
    lab: LabNotebook, page: Locator
) -> None:
    overview = page.locator(".rdx-overview")
    width = box_of(overview)["width"]
    page.get_by_role("separator", name="Width of the overview").focus()
    lab.page.keyboard.press("ArrowRight")
    waits_until(lambda: abs(box_of(overview)["width"] - width - 24) < 2)
    waits_until(lambda: lab.value("ex.state['layout']['columns'] is not None"))
    side = page.locator(".rdx-side")
    handle = box_of(page.get_by_role("separator", name="Width of the screenshot"))
    x, y = handle["x"] + 3, handle["y"] + 60
    width = box_of(side)["width"]
    lab.page.mouse.move(x, y)
    lab.page.mouse.down()
    lab.page.mouse.move(x - 40, y, steps=4)
    lab.page.mouse.up()
    waits_until(lambda: abs(box_of(side)["width"] - width - 40) < 3)
    waits_until(lambda: lab.value("ex.state['layout']['side'] is not None"))
    lab.value("setattr(ex, 'state', {'layout': {'columns': None, 'side': None}})")
    waits_until(lambda: abs(box_of(side)["width"] - width) < 24)

"""A click on a cell of several samples, with and without a rest of the pointer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pandas as pd
import pytest
from playwright.sync_api import expect

import rounddiag as rd
from tests.browser.conftest import ROOT
from tests.browser.explored import Explored, at, worst
from tests.browser.explorers import IMPORTS, waits_until
from tests.browser.hard_batches import with_rounds
from tests.browser.lab import LabNotebook, ask

NUM = 1000
POOL = 3  # samples that share a row
# Python answers all requests as ever, and notes those for the place of a cell.
_EXPLORER = f"""from tests.browser.hard_batches import with_rounds
from tests.browser.replies import replies_of, reply_with
ex = rd.explore(with_rounds({NUM}, 6, 3), order="sample", current={{"sample": 60}})
asked, answer = [], replies_of(ex)
def worst(cells):
    asked.append(cells["samples"][0])
    return answer["worst"](cells)
def refuse(changes):
    raise ValueError("no")
reply_with(ex, "worst", worst)
first = ex.state
ex"""
# What the line of the selection said when the title of the sample changed.
_WATCH = """node => {
  const line = node.querySelector('.rdx-chosen');
  globalThis.said = new Promise(done => {
    new MutationObserver(() => done(line.textContent))
      .observe(node.querySelector('.rdx-title'), { childList: true });
  });
}"""


@pytest.fixture(scope="module")
def one(
    next_cells: Callable[..., AbstractContextManager[LabNotebook]],
) -> Iterator[Explored]:
    cells = (IMPORTS.format(root=str(ROOT)), _EXPLORER)
    with next_cells("ahead.ipynb", *cells) as lab:
        lab.run_all()
        # The verdict takes room when it comes: cells must not move under the pointer.
        expect(lab.page.locator(".rdx-verdict > summary b")).to_be_visible()
        yield Explored(lab)
        assert lab.console_errors == []


@pytest.fixture
def explored(one: Explored) -> Explored:
    one.page.mouse.move(0, 0)
    one.reset()
    return one


@pytest.fixture(scope="module")
def tokens() -> pd.DataFrame:
    return rd.token_frame(with_rounds(NUM, 6, 3))


def place_of(tokens: pd.DataFrame, row: int, round_: int) -> tuple[int, int, int]:
    """Return the worst of some tokens in a cell."""
    is_in = (tokens["sample"] // POOL == row) & (tokens["round"] == round_)
    cell = tokens[is_in]
    sample, found, token = cell.iloc[worst(cell)][["sample", "round", "token"]]
    return int(sample), int(found), int(token)


def middle(explored: Explored, row: int, round_: int) -> Any:
    return at(explored.heatmap, round_, POOL * row + 1)


def rest_on(explored: Explored, row: int, round_: int) -> None:
    """Rest the pointer on a new cell until Python has said where a click leads."""
    before = len(explored.lab.value("asked"))
    explored.page.mouse.move(*middle(explored, row, round_))
    waits_until(lambda: len(explored.lab.value("asked")) > before)
    explored.rest()


def click(explored: Explored, row: int, round_: int) -> None:
    explored.page.mouse.click(*middle(explored, row, round_))


def test_after_a_rest_the_place_is_shown_before_python_answers(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    rest_on(explored, 5, 1)
    assert explored.lab.value("asked")[-1] == 5 * POOL
    explored.node.evaluate(_WATCH)
    click(explored, 5, 1)
    assert ask(explored.page, "globalThis.said") == ""
    explored.is_at(*place_of(tokens, 5, 1))
    explored.knows("cells", {"samples": [15, 16, 17], "rounds": [1, 1]})
    expect(explored.find(".rdx-chosen")).to_contain_text("2 rounds, 6 tokens")


def test_without_a_rest_python_says_where_it_leads(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    explored.node.evaluate(_WATCH)
    click(explored, 7, 1)
    assert "selected" in ask(explored.page, "globalThis.said")
    explored.rest()
    explored.is_at(*place_of(tokens, 7, 1))


@pytest.mark.parametrize(("who", "row"), [("page", 3), ("Python", 10)])
def test_of_another_filter_the_place_is_another(
    explored: Explored, tokens: pd.DataFrame, who: str, row: int
) -> None:
    rest_on(explored, row, 0)
    if who == "page":
        explored.filter_by("token")
        explored.type_into("token from", "1")
        explored.knows("filter", {"token": {"from": 1, "to": None}})
        explored.page.keyboard.press("Escape")
        explored.rest()
    else:
        explored.set("{'filter': {'token': {'from': 1}}}")
    click(explored, row, 0)
    kept = tokens[tokens["token"] >= 1]
    assert place_of(kept, row, 0)[0] != place_of(tokens, row, 0)[0]
    explored.rest()
    explored.is_at(*place_of(kept, row, 0))


@pytest.mark.parametrize(
    ("first", "second", "rested"), [(11, 12, [11]), (13, 14, [14]), (15, 16, [15, 16])]
)
def test_of_two_clicks_the_second_one_wins(
    explored: Explored, tokens: pd.DataFrame, first: int, second: int, rested: list[int]
) -> None:
    for row in rested:
        rest_on(explored, row, 0)
    for row in (first, second):
        click(explored, row, 0)
    samples = [POOL * second, POOL * second + 1, POOL * second + 2]
    explored.knows("cells", {"samples": samples, "rounds": [0, 0]})
    explored.rest()
    explored.is_at(*place_of(tokens, second, 0))


def test_a_key_after_the_click_goes_on_from_there(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    sample, round_, token = place_of(tokens, 4, 0)
    rest_on(explored, 4, 0)
    explored.lab.value(
        "reply_with(ex, 'select', lambda changes: "
        "(__import__('time').sleep(0.3), answer['select'](changes))[1])"
    )
    click(explored, 4, 0)
    expect(explored.find(".rdx-title")).to_contain_text(f"Sample {sample} ·")
    explored.press("ArrowRight")
    explored.rest()
    explored.is_at(sample, round_, token + 1)
    explored.lab.value("reply_with(ex, 'select', answer['select'])")


def test_what_python_refuses_is_not_kept(explored: Explored) -> None:
    rest_on(explored, 8, 1)
    explored.lab.value("reply_with(ex, 'select', refuse)")
    click(explored, 8, 1)
    expect(explored.find(".rdx-banner")).to_contain_text("ValueError: no")
    explored.lab.value("reply_with(ex, 'select', answer['select'])")
    explored.rest()
    place = explored.state["current"]
    assert place["sample"] == 60
    explored.is_at(*(place[key] for key in ("sample", "round", "token")))

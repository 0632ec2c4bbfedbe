"""Every key of the explorer; the notebook around it must not hear them."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest
from playwright.sync_api import expect

import rounddiag as rd
from rounddiag.figures._parts.labels import format_number
from tests.browser.explored import Explored, worst
from tests.browser.explorers import waits_for

_CELLS = """() => {
  const { content } = jupyterapp.shell.currentWidget;
  return [content.mode, content.activeCellIndex,
    ...Array.from(content.model.cells).map(cell => cell.sharedModel.source)];
}"""


@pytest.fixture(autouse=True)
def _notebook_is_unchanged(explored: Explored) -> Iterator[None]:
    """Whatever key is pressed, the cells and which of them is active stay."""
    explored.node.focus()
    explored.lab.settle()
    before = explored.page.evaluate(_CELLS)
    assert len(before) == 5
    yield
    assert explored.page.evaluate(_CELLS) == before


@pytest.fixture(scope="module")
def tokens(seen: rd.Batch) -> pd.DataFrame:
    return rd.token_frame(seen, ["text"])


def worst_in(tokens: pd.DataFrame, sample: int, round_: int) -> int:
    is_in = (tokens["sample"] == sample) & (tokens["round"] == round_)
    return worst(tokens[is_in])


def last_round(tokens: pd.DataFrame, sample: int, most: int) -> int:
    """Return the round that a key goes to in a sample of perhaps fewer rounds."""
    return min(most, int(tokens["round"][tokens["sample"] == sample].max()))


def is_in(explored: Explored, tokens: pd.DataFrame, sample: int, most: int) -> None:
    """Wait for the worst token of a round, or of the sample's last one."""
    round_ = last_round(tokens, sample, most)
    explored.is_at(sample, round_, worst_in(tokens, sample, round_))


def test_keys_go_down_and_up_the_heatmap_and_to_its_ends(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    rows = explored.rows()
    row = rows.index(35)
    explored.press("j")
    is_in(explored, tokens, rows[row + 1], 4)
    explored.press("k")
    most = last_round(tokens, rows[row + 1], 4)
    is_in(explored, tokens, 35, most)
    for key, at in (("g", 0), ("k", 0), ("Shift+G", -1), ("j", -1)):
        explored.press(key)
        most = last_round(tokens, rows[at], most)
        is_in(explored, tokens, rows[at], most)


def test_keys_go_to_rounds_tokens_and_rounds_beside(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    explored.press("ArrowRight")
    explored.is_at(35, 4, 4)
    explored.press("ArrowLeft", "ArrowLeft")
    explored.is_at(35, 4, 2)
    explored.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
    before = (tokens["sample"] == 35) & (tokens["round"] == 3)
    explored.is_at(35, 3, int(before.sum()) - 1)
    explored.press("n")
    is_in(explored, tokens, 35, 4)
    explored.press("n")
    is_in(explored, tokens, 35, 5)
    explored.press("n", "n", "n", "n")
    is_in(explored, tokens, 35, 7)
    explored.press("p")
    is_in(explored, tokens, 35, 6)
    explored.press(*"pppppppp")
    is_in(explored, tokens, 35, 0)


def test_w_goes_to_the_next_of_the_worst(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    order = tokens["diff"].abs().sort_values(ascending=False, kind="stable").index
    explored.open_list("Tokens")
    for index in order[:3]:
        explored.press("w")
        place = tokens.loc[index, ["sample", "round", "token"]]
        explored.is_at(*(int(value) for value in place))
    chosen = explored.find(".rdx-list-rows [aria-current='true']")
    expect(chosen).to_contain_text(format_number(float(tokens["diff"][order[2]])))


def test_slash_searches_and_enter_walks_over_the_hits(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    explored.press("/")
    expect(explored.field("Search the text")).to_be_focused()
    explored.page.keyboard.type("click")
    sample = tokens[(tokens["sample"] == 35) & tokens["text"].str.contains("click")]
    expect(explored.find(".rdx-count")).to_have_text(f"{len(sample)} hits")
    expect(explored.find(".rdx-hit")).to_have_count(len(sample))
    hits = sample[["round", "token"]].to_numpy().tolist()
    after = [place for place in hits if place > [4, 3]]
    explored.page.keyboard.press("Enter")
    explored.is_at(35, *after[0])
    explored.page.keyboard.press("Enter")
    explored.is_at(35, *after[1])
    explored.page.keyboard.press("Shift+Enter")
    explored.is_at(35, *after[0])
    explored.page.keyboard.type("jjnw")
    expect(explored.find(".rdx-count")).to_have_text("0 hits")
    explored.is_at(35, *after[0])
    explored.field("Search the text").fill("")
    expect(explored.find(".rdx-hit")).to_have_count(0)


def test_f_shows_the_screenshot_large_and_escape_closes_it(explored: Explored) -> None:
    explored.press("f")
    large = explored.find(".rdx-stage img")
    expect(large).to_be_visible()
    explored.page.keyboard.press("Escape")
    expect(large).to_be_hidden()
    explored.press("n")
    waits_for(explored.lab, "ex.current['round']", 5)


def test_t_lists_the_selection(explored: Explored, tokens: pd.DataFrame) -> None:
    explored.press("t")
    expect(explored.find(".rdx-list-what")).to_contain_text("18 tokens selected")
    is_cell = (tokens["sample"] == 35) & (tokens["round"] == 4)
    diff = tokens["diff"][is_cell]
    first = explored.find(".rdx-list-rows button").first.locator("span")
    largest = float(diff.iloc[worst(tokens[is_cell])])
    expect(first.last).to_have_text(f"+{format_number(largest)}")
    text = tokens["text"][is_cell].iloc[1]
    expect(first.first.locator("b")).to_have_text(text.strip())
    explored.lab.screenshot("explorer_selection")
    explored.press("t")
    expect(first.first).to_be_hidden()


def test_a_question_mark_lists_the_keys(explored: Explored) -> None:
    explored.press("?")
    sheet = explored.find(".rdx-sheet")
    keys = sheet.locator("kbd").all_text_contents()
    assert keys == [*"jknp→←][w↑↓gGbB/cmN", "space", *"fa,.vTFt?", "Esc"]
    explored.lab.screenshot("explorer_keys")
    explored.page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()


def test_escape_clears_what_is_chosen(explored: Explored) -> None:
    explored.drag(explored.heatmap, (2, 3), (4, 6))
    waits_for(explored.lab, "ex.state['cells'] is None", value=False)
    explored.press("Escape")
    waits_for(explored.lab, "ex.state['cells']", None)
    expect(explored.find(".rdx-chosen")).to_be_hidden()
    expect(explored.find(".rdx-cell-box:visible")).to_have_count(0)


def test_the_notebook_s_own_keys_do_nothing_to_it(explored: Explored) -> None:
    """In command mode these would cut, copy, delete, add and convert cells."""
    explored.press("x", "d", "d", "a", "y", "c", "v", "z", "Enter", "0", "0")
    explored.press("Shift+Enter", "ArrowUp", "ArrowDown")
    explored.rest()
    assert explored.lab.value("ex.state == first") is True


def test_it_is_reached_by_tab(explored: Explored) -> None:
    explored.field("threshold").focus()
    explored.press("Tab")
    inside = "node => node.contains(document.activeElement)"
    assert explored.node.evaluate(inside) is True
    explored.field("threshold").focus()
    explored.page.keyboard.press("Escape")
    explored.page.keyboard.type("j")
    assert explored.lab.value("ex.current['sample']") == 35


@pytest.mark.parametrize("kind", ["[type=radio]", "[type=checkbox]"])
def test_keys_work_while_a_control_has_the_focus(
    explored: Explored, tokens: pd.DataFrame, kind: str
) -> None:
    rows = explored.rows()
    control = explored.node.locator(f"input{kind}").first
    control.evaluate("control => control.focus()")
    control.press("j")
    is_in(explored, tokens, rows[rows.index(35) + 1], 4)


def test_a_menu_gives_the_focus_back(explored: Explored, tokens: pd.DataFrame) -> None:
    rows = explored.rows()
    menu = explored.node.locator("select").first
    menu.focus()
    menu.dispatch_event("change")
    explored.page.keyboard.press("j")
    is_in(explored, tokens, rows[rows.index(35) + 1], 4)


@pytest.mark.parametrize("control", ["select", "input[type=checkbox]", "button"])
def test_a_control_with_the_focus_suppresses_shortcuts_itself(
    explored: Explored, control: str
) -> None:
    """Notebook 7 hears keys before the explorer, and asks this element alone."""
    marked = explored.page.evaluate(
        """selector => {
          for (const control of document.querySelectorAll(`.rdx ${selector}`)) {
            control.focus();
            if (document.activeElement === control)
              return control.getAttribute("data-lm-suppress-shortcuts");
          }
        }""",
        control,
    )
    assert marked == "true"

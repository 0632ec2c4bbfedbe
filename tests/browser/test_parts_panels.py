"""Token, rounds and lists in the explorer's page, driven as people do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.figures._parts.labels import format_number
from rounddiag.widgets.images import thumbnails
from rounddiag.widgets.sample_view import sample_payload
from tests.browser.explorer_data import action, round_of, sample_of
from tests.browser.parts import PartsPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    Sample = dict[str, Any]

SHOW = """
said.length = 0;
Object.assign(globalThis, {
  focus: focusPanel(),
  strip: roundStrip({onRound: say('round')}),
  lists: listDrawer({onRow: say('row'), request: async () => found}),
});
const nodes = [focus, strip, lists].map(part => part.node);
document.querySelector('.rdx').replaceChildren(...nodes);"""
FACTS = """const rows = [...document.querySelectorAll('.rdx-facts-list > div')];
const words = row => [...row.children].map(one => one.textContent);
return Object.fromEntries(rows.map(words));"""
TOKENS: dict[str, Any] = {
    "num_rows": 2,
    "caption": "by |diff|",
    "empty": "",
    "columns": [
        {
            "head": "text",
            "kind": "piece",
            "values": [["it", " go\n", "on"], ["", "<b>", ""]],
        },
        {"head": "sample", "kind": "count", "values": [3, 0]},
        {"head": "round", "kind": "count", "values": [1, 2]},
        {"head": "token", "kind": "count", "values": [1234, 0]},
        {"head": "diff", "kind": "signed", "values": [-3.25, 0.5]},
    ],
    "places": [
        {"sample": 3, "round": 1, "token": 1234},
        {"sample": 0, "round": 2, "token": 0},
    ],
}


@pytest.fixture(scope="module")
def opened(chromium: Browser) -> Iterator[PartsPage]:
    page = PartsPage(chromium, width=600, theme="light")
    yield page
    assert page.complaints == []
    page.close()


@pytest.fixture
def page(opened: PartsPage) -> PartsPage:
    opened.run(SHOW)
    return opened


@pytest.fixture(scope="module")
def batch() -> rd.Batch:
    return rd.load("sample_data/image_window.parquet")


def test_the_panel_tells_all_of_a_token(page: PartsPage, batch: rd.Batch) -> None:
    sample = sample_payload(batch, sample=7)
    tokens = sample["tokens"]
    worst = int(np.abs(tokens["diff"]).argmax())
    page.keep("sample", sample)
    page.run(f"focus.show(sample, {worst});")
    of = {name: float(tokens[name][worst]) for name in ("a", "b", "diff")}
    rows = [page.texts(f".rdx-scores tbody tr:nth-child({row}) > *") for row in (1, 2)]
    assert [[text.strip() for text in row] for row in rows] == [
        [name, format_number(of[key]), format_number(math.exp(of[key])), ""]
        for name, key in (("old", "a"), ("rollout", "b"))
    ]
    index = tokens["round"][worst]
    size = sample["rounds"][index]["num_tokens"]
    place = page.run(f"return ordinal({tokens['rank_in_batch'][worst]});")
    assert page.run(FACTS) == {
        "diff, old − rollout": f"{format_number(of['diff'])} nat",
        "ratio, old / rollout": format_number(math.exp(of["diff"])),
        "k3": format_number(math.expm1(of["diff"]) - of["diff"]),
        "entropy": "",
        "advantage": "",
        "training": "",
        "by |diff|": f"1st of {size} in the round, {place} of all",
        "round": f"{index}, token {worst - sample['rounds'][index]['first']}",
        "position": str(tokens["position"][worst]),
        "token id": str(tokens["token_id"][worst]),
        "role": tokens["role"][worst],
    }
    assert page.texts(".rdx-focus-piece") == [tokens["piece"][worst]]


def test_a_token_that_is_not_finite_has_no_rank(page: PartsPage) -> None:
    sample = sample_of(["a"], [math.nan])
    sample["tokens"]["rank_in_round"] = np.zeros(1, np.int32)
    page.keep("sample", sample)
    page.run("focus.show(sample, 0);")
    facts = page.run(FACTS)
    assert facts["diff, old − rollout"] == "not finite"
    assert facts["by |diff|"] == "no place: not finite"


def test_without_a_token_the_panel_says_what_to_do(page: PartsPage) -> None:
    assert page.texts(".rdx-focus") == ["No token selected. Click one in the text."]


def test_rounds_are_chosen_by_mouse_and_by_arrow_keys(
    page: PartsPage, batch: rd.Batch
) -> None:
    sample = sample_payload(batch, sample=28)
    page.keep("sample", sample)
    page.keep("shots", thumbnails(batch, sample=28))
    page.run("strip.show(sample, shots); strip.mark(0);")
    cards = page.find(".rdx-card")
    assert page.texts(".rdx-card-line:last-child > :last-child") == [
        format_number(one["mean_abs_diff"]) for one in sample["rounds"]
    ]
    cards.nth(2).click()
    cards.nth(2).press("ArrowRight")
    page.page.keyboard.press("End")
    page.page.keyboard.press("Home")
    assert page.said == [["round", 2], ["round", 3], ["round", 7], ["round", 0]]
    edges = "return [...document.querySelector('.rdx-strip-list').classList];"
    assert page.run(edges) == ["rdx-strip-list", "rdx-more-after"]
    page.run("strip.mark(7);")
    page.page.wait_for_function(
        "document.querySelector('.rdx-strip-list.rdx-more-before')"
    )
    assert page.run(edges) == ["rdx-strip-list", "rdx-more-before"]
    assert cards.nth(7).get_attribute("aria-current") == "true"
    assert page.run("return document.querySelector('.rdx-strip-list').scrollLeft;") > 0
    assert page.find('.rdx-card[tabindex="0"]').count() == 1
    widths = (
        "[...document.querySelectorAll('.rdx-card img')].map(one => one.naturalWidth)"
    )
    page.page.wait_for_function(f"{widths}.every(width => width === 160)")
    assert len(page.run(f"return {widths};")) == 8


def test_bars_of_rounds_have_the_length_and_the_colour_of_their_level(
    page: PartsPage,
) -> None:
    rounds = [
        round_of(0, ["a"], [0.1], round=0, level=8),
        round_of(1, ["b"], [0.1], round=1, level=-4),
        round_of(2, ["c"], [math.nan], round=2, level=0),
    ]
    page.keep("sample", sample_of(["a", "b", "c"], rounds=rounds))
    page.run("strip.show(sample, null);")
    bars = page.run("""return [...document.querySelectorAll('.rdx-card .rdx-bar')]
      .map(one => [one.style.width, one.classList.contains('rdx-is-less')]);""")
    assert bars == [["100%", False], ["50%", True], ["0%", False]]
    assert page.texts(".rdx-card-line:last-child")[2] == "not finite ✕"


def test_pictures_that_come_later_leave_the_others_as_they_are(
    page: PartsPage, batch: rd.Batch
) -> None:
    page.keep("sample", sample_payload(batch, sample=7))
    page.keep("shots", thumbnails(batch, sample=7))
    page.run("strip.show(sample, null); strip.mark(5);")
    assert page.find(".rdx-card img").count() == 0
    page.run("globalThis.known = shots.slice(4, 6); strip.show(sample, known);")
    first = page.find(".rdx-card img").first.get_attribute("src")
    page.run("known.push(shots[0]); strip.show(sample, known);")
    images = page.find(".rdx-card img")
    assert images.count() == 3
    assert images.nth(1).get_attribute("src") == first
    assert (
        page.find('.rdx-card[aria-current="true"]').get_attribute("data-round") == "5"
    )


def test_a_sample_without_rounds_says_so(page: PartsPage) -> None:
    page.keep("sample", sample_of([]))
    page.run("strip.show(sample, null);")
    assert page.texts(".rdx-strip") == ["This sample has no rounds."]


def test_a_picture_of_a_round_that_cannot_be_read_says_so(page: PartsPage) -> None:
    rounds = [round_of(0, ["a"], [0.1], screenshot=0, action=action("click"))]
    page.keep("sample", sample_of(["a"], rounds=rounds))
    page.keep("shots", [{"index": 0, "error": "not a picture"}])
    page.run("strip.show(sample, shots);")
    assert page.texts(".rdx-card-picture") == ["no picture"]
    broken = page.find(".rdx-card-picture .rdx-picture")
    assert broken.get_attribute("title") == "not a picture"


def rows_of(page: PartsPage) -> list[list[str]]:
    rows = page.find(".rdx-list-rows button")
    cells = [one.locator(".rdx-cell").all_text_contents() for one in rows.all()]
    return [[text.strip() for text in row] for row in cells]  # decimals are aligned


def test_a_filter_changes_the_means_of_the_cards(page: PartsPage) -> None:
    rounds = [
        round_of(0, ["a", "b"], [0.25, 0.75], round=0),
        round_of(2, ["c"], [0.1], round=1),
    ]
    page.keep("sample", sample_of(["a", "b", "c"], [0.25, 0.75, 0.1], rounds=rounds))
    page.run("strip.show(sample, null); strip.setKept(Uint8Array.of(0, 1, 0));")
    assert page.texts(".rdx-card-value") == ["0.75", "none kept"]
    title = page.find(".rdx-card").first.get_attribute("title")
    assert title == "round 0: wait; mean |diff| 0.75 nat of what the filter keeps"
    page.run("strip.setKept(null);")
    assert page.texts(".rdx-card-value") == ["0.5", "0.1"]


def test_the_head_of_a_column_is_whole_where_there_is_room(page: PartsPage) -> None:
    rows = {**TOKENS, "columns": [{"head": "mean |diff| [nat]", "kind": "number"}]}
    rows["columns"][0]["values"] = [1.0, 2.0]
    page.keep("found", rows)
    page.run("await lists.toggle(true, 'rounds'); await lists.refresh();")
    head = page.find(".rdx-list-head > .rdx-cell")
    head.wait_for()
    assert head.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_each_row_of_a_list_leads_somewhere(page: PartsPage) -> None:
    page.keep("found", TOKENS)
    page.run("lists.toggle(true, 'tokens');")
    page.find(".rdx-list-rows button").first.wait_for()
    assert rows_of(page) == [
        ["it go↵on", "3", "1", "1,234", "−3.25"],
        ["<b>", "0", "2", "0", "+0.5"],
    ]
    heads = page.texts(".rdx-list-head > *")
    assert heads == ["text", "sample", "round", "token", "diff"]
    rows = page.find(".rdx-list-rows button")
    rows.nth(1).click()
    rows.nth(1).press("ArrowUp")
    page.run("await lists.next(); await lists.next();")
    first, second = TOKENS["places"]
    assert page.said == [
        ["row", {"place": place, "condition": None, "finding": None, "at": at}]
        for place, at in ((second, 1), (first, 0), (second, 1), (first, 0))
    ]
    assert rows.nth(0).get_attribute("aria-current") == "true"


def test_lists_are_changed_by_mouse_and_keys(page: PartsPage) -> None:
    page.keep("found", TOKENS)
    page.run("lists.toggle(true, 'findings');")
    tabs = page.find("[role=tab]")
    tabs.nth(0).press("ArrowRight")
    assert tabs.nth(1).get_attribute("aria-selected") == "true"
    page.find(".rdx-list-rows button").first.wait_for()
    empty = {"num_rows": 0, "columns": [], "caption": "", "empty": "Nothing is finite."}
    page.keep("found", empty)
    tabs.nth(3).click()
    page.find(".rdx-list-rows .rdx-empty").wait_for()
    assert page.texts(".rdx-list-rows") == ["Nothing is finite."]
    page.run("await lists.next();")
    assert page.said == []
    tabs.nth(3).click()
    assert not page.find(".rdx-list").is_visible()


def test_of_a_long_list_the_rows_in_sight_are_drawn(page: PartsPage) -> None:
    page.run("""globalThis.asked = [];
      const many = (list, start) => {
        asked.push([list, start]);
        const values = Array.from({length: 200}, (_, at) => start + at);
        return Promise.resolve({num_rows: 5000, caption: '', columns: [
          {head: 'n', kind: 'count', values}], places: values.map(n => ({sample: n}))});
      };
      globalThis.lists = listDrawer({onRow: say('row'), request: many});
      document.querySelector('.rdx').replaceChildren(lists.node);
      lists.toggle(true, 'rounds');""")
    page.find(".rdx-list-rows button").first.wait_for()
    assert page.find(".rdx-list-rows button").count() < 40
    page.find(".rdx-list").evaluate("node => { node.scrollTop = 24 * 3000; }")
    page.find(".rdx-list-rows >> text='3,000'").click()
    assert page.find(".rdx-list-rows button").count() < 40
    assert page.said[0][1]["place"] == {"sample": 3000}
    assert page.run("return asked;") == [
        ["rounds", 0],
        ["rounds", 2800],
        ["rounds", 3000],
    ]


def test_places_are_written_as_words_have_them(page: PartsPage) -> None:
    written = page.run("return [1, 2, 3, 4, 11, 22, 1013].map(ordinal);")
    assert written == ["1st", "2nd", "3rd", "4th", "11th", "22nd", "1,013th"]

"""The text of a sample in the explorer's page, driven as people do."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from playwright.sync_api import expect

import rounddiag as rd
from rounddiag.figures._parts.labels import format_number
from rounddiag.figures.colored_text import SCALE, token_classes
from rounddiag.widgets.sample_view import sample_payload
from tests.browser.explorer_data import action, sample_of
from tests.browser.parts import PartsPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

    Sample = dict[str, Any]

SHOW = """
said.length = 0;
globalThis.text = tokenText({onToken: say('token'), onObservation: async (...range) => {
  say('observation')(...range);
  if (globalThis.observed instanceof Error) throw observed;
  return observed;
}});
document.querySelector('.rdx').replaceChildren(text.key, text.node);
text.show(sample, Math.LN2);"""
SPANS = ".rdx-chunk > span"
WEIGHT = "node => getComputedStyle(node).fontWeight"
HALF_SEEN = """const scroller = document.querySelector('.rdx-scroller');
const { top } = scroller.getBoundingClientRect();
return [...scroller.querySelectorAll('.rdx-round-head')]
  .map((one) => [one.getBoundingClientRect().top - top, one.offsetHeight])
  .filter(([at, height]) => Math.abs(at) > 1 && Math.abs(at) < height - 1);"""


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[PartsPage]:
    opened = PartsPage(chromium, width=800, theme="light")
    yield opened
    assert opened.complaints == []
    opened.close()


@pytest.fixture(scope="module")
def sample() -> Sample:
    return sample_payload(rd.load("sample_data/image_window.parquet"), sample=8)


@pytest.fixture
def shown(page: PartsPage, sample: Sample) -> PartsPage:
    page.keep("sample", sample)
    page.run(SHOW)
    return page


def show(page: PartsPage, sample: Sample) -> None:
    page.keep("sample", sample)
    page.run(SHOW)


def test_every_token_has_its_text_and_its_colour(
    shown: PartsPage, sample: Sample
) -> None:
    tokens = sample["tokens"]
    signs = [piece if piece.strip() else "·" for piece in tokens["piece"]]
    assert shown.texts(SPANS) == signs
    found = shown.run(f"""return [...document.querySelectorAll('{SPANS}')].map(
        one => [...one.classList].filter(name => /^rdx-([pn]\\d|u|x)$/.test(name)));""")
    classes = [" ".join(names).replace("rdx-", "") for names in found]
    assert classes == token_classes(np.asarray(tokens["diff"]))


def test_lines_over_and_under_are_darker_for_unlikely_tokens(page: PartsPage) -> None:
    sample = sample_of(["a", "b", "c"])
    sample["tokens"]["a"] = np.array([-0.1, -3.2, -40.0], np.float32)
    sample["tokens"]["b"] = np.array([-2.0, math.nan, -0.4], np.float32)
    show(page, sample)
    names = page.run(
        f"return [...document.querySelectorAll('{SPANS}')].map(one => one.className);"
    )
    assert names == ["rdx-under2", "rdx-over3", "rdx-over8"]


def test_a_click_on_a_token_says_where_it_is(shown: PartsPage, sample: Sample) -> None:
    first = sample["rounds"][3]["first"]
    shown.find(SPANS).nth(first + 2).click()
    assert shown.said == [["token", 3, 2, first + 2]]


def test_a_token_under_the_pointer_tells_its_numbers(
    shown: PartsPage, sample: Sample
) -> None:
    worst = int(np.abs(sample["tokens"]["diff"]).argmax())
    shown.find(SPANS).nth(worst).hover()
    old, rollout = (
        format_number(float(sample["tokens"][name][worst])) for name in "ab"
    )
    diff = format_number(float(sample["tokens"]["diff"][worst]))
    assert shown.texts(".rdx-tip > div") == [
        f"diff {diff}",
        f"old {old}, rollout {rollout}",
        f"round {sample['tokens']['round'][worst]}, 1st largest in it",
    ]
    shown.page.mouse.move(0, 0)
    assert not shown.find(".rdx-tip").is_visible()


def test_the_marked_token_is_scrolled_to_and_the_page_is_not(
    shown: PartsPage, sample: Sample
) -> None:
    last = sample["rounds"][-1]
    shown.run(f"text.mark({last['round']}, {last['num_tokens'] - 1});")
    marked = shown.find(f"{SPANS}.rdx-now")
    box, around = marked.bounding_box(), shown.find(".rdx-scroller").bounding_box()
    assert box is not None
    assert around is not None
    assert around["y"] < box["y"] < around["y"] + around["height"] - box["height"]
    assert shown.run("return scrollY;") == 0
    head = shown.find(".rdx-round-head.rdx-now").text_content() or ""
    assert head.startswith(f"round {last['round']}")


def test_no_head_of_a_round_is_seen_in_half(shown: PartsPage, sample: Sample) -> None:
    height = "document.querySelector('.rdx-scroller').style.maxHeight"
    offsets = []
    for pixels in (160, 220, 280, 290):
        shown.run(f"{height} = '{pixels}px';")
        for one in sample["rounds"]:
            for token in (0, one["num_tokens"] // 2, one["num_tokens"] - 1):
                shown.run(f"text.mark({one['round']}, {token});")
                offsets += shown.run(HALF_SEEN)
    assert offsets == []


def test_the_threshold_moves_the_underline(shown: PartsPage, sample: Sample) -> None:
    size = np.abs(sample["tokens"]["diff"])
    for threshold in (0.1, 1.5, 0.02):
        shown.run(f"text.setThreshold({threshold});")
        assert shown.find(f"{SPANS}.rdx-u").count() == int((size > threshold).sum()) > 0
    assert "beyond 0.02 nat" in shown.texts(".rdx-key")[0]


def test_the_key_prints_the_ends_of_the_scale(shown: PartsPage) -> None:
    ends = f"{format_number(SCALE.low)} to {format_number(SCALE.high)} nat"
    assert ends in shown.texts(".rdx-key")[0]


def test_observations_open_by_mouse_and_close_by_key(shown: PartsPage) -> None:
    shown.keep(
        "observed",
        {
            "pieces": ["user", "<pad>", "<pad>", "\n"],
            "is_image": np.array([0, 1, 1, 0], np.uint8),
        },
    )
    chip = shown.find(".rdx-gap button").nth(1)
    assert chip.text_content() == "12 image tokens, 20 others"
    chip.click()
    inside = shown.find(".rdx-inside").nth(1)
    inside.locator("span").first.wait_for()
    assert inside.text_content() == "user2 image tokens↵\n"
    ((name, start, stop),) = shown.said
    gap = shown.run("return sample.gaps[1];")
    assert [name, start, stop] == ["observation", gap["start"], gap["stop"]]
    assert chip.get_attribute("aria-expanded") == "true"
    chip.press("Enter")
    assert not inside.is_visible()
    chip.press("Enter")
    assert inside.is_visible()
    assert shown.said == []


def test_an_observation_that_fails_says_why(shown: PartsPage) -> None:
    shown.run("globalThis.observed = new Error('The kernel is gone.');")
    shown.find(".rdx-gap button").first.click()
    sentence = shown.find(".rdx-inside .rdx-empty")
    sentence.wait_for()
    assert (
        sentence.text_content()
        == "This observation cannot be shown. The kernel is gone."
    )


def test_a_search_finds_words_over_several_tokens(page: PartsPage) -> None:
    show(page, sample_of(["cl", "ick", "(1", ", 2)", " CLICK", "1)"]))
    assert page.run("return text.search('click(', false);") == 1
    assert page.texts(".rdx-hit") == ["cl", "ick", "(1"]
    assert page.run(r"return text.search('click|\\d\\)', true);") == 4
    walk = "[[0, 1], [5, 1], [4, -1], [0, -1]].map(place => text.nextHit(...place))"
    assert page.run(f"return {walk};") == [3, 0, 3, 5]
    assert page.run("return text.search('', false);") == 0
    assert page.find(".rdx-hit").count() == 0
    error = "try { text.search('(', true); } catch (error) { return error.name; }"
    assert page.run(error) == "SyntaxError"


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        (sample_of([]), "No generated tokens: the response mask is 0 everywhere."),
        (
            sample_of(["⟨100⟩"]),
            "No tokenizer: token ids replace the text, and no action can be read."
            " Pass its path: rd.load(path, tokenizer=…)",
        ),
        (sample_of(["a", "b"], [math.nan] * 2), "No diff of this sample is finite."),
    ],
)
def test_what_is_missing_is_said(
    page: PartsPage, sample: Sample, sentence: str
) -> None:
    show(page, sample)
    assert page.texts(".rdx-text-notes > .rdx-empty") == [sentence]


def test_text_that_was_left_out_is_said(page: PartsPage) -> None:
    sample = sample_of(["□", "□"])
    del sample["tokens"]["token_id"]
    show(page, sample)
    said = "The file was saved without text: each square is a token."
    assert page.texts(".rdx-text-notes > .rdx-empty") == [said]


def of_roles(*parts: tuple[str, list[str]], **others: Any) -> Sample:
    """A sample of one round whose tokens have these roles."""
    pieces = [piece for _, found in parts for piece in found]
    sample = sample_of(pieces)
    sample["tokens"]["role"] = [role for role, found in parts for _ in found]
    sample["rounds"][0] |= {"action": action("click"), **others}
    return sample


def test_the_action_is_apart_from_a_thought_that_folds(page: PartsPage) -> None:
    parts = [("thought", ["I ", "see."]), ("special", ["</t>"]), ("action", ["go"])]
    show(page, of_roles(*parts, ("syntax", ["()"])))
    head = page.find(".rdx-round-action")
    assert (head.text_content(), head.evaluate(WEIGHT)) == ("click", "600")
    assert page.texts(".rdx-thought") == ["I·see.</t>"]
    action_ = page.find(".rdx-action")
    assert (action_.text_content(), action_.evaluate(WEIGHT)) == ("go()", "600")
    page.find(".rdx-fold").click()
    assert not page.find(".rdx-thought").is_visible()
    page.run("text.mark(0, 1);")  # a token of it
    assert page.find(".rdx-thought").is_visible()
    page.run("text.foldAll();")
    assert not page.find(".rdx-thought").is_visible()
    page.run("text.foldAll();")
    assert page.find(".rdx-thought").is_visible()


def test_a_text_that_is_no_action_is_shown_with_the_reason(page: PartsPage) -> None:
    nothing = action("unknown", written="clik(3)", why="`clik` is no action")
    sample = of_roles(("thought", ["clik", "(3)"]), action=nothing)
    show(page, sample)
    assert page.texts(".rdx-failed") == ["no action: clik is no actionclik(3)"]
    assert page.find(".rdx-failed q").text_content() == "clik(3)"
    assert page.find(".rdx-thought").count() == 0  # there is nothing else to read
    assert not page.find(".rdx-fold").is_visible()


def test_the_end_and_what_was_recorded_of_a_round_are_in_place(
    page: PartsPage,
) -> None:
    facts = [
        {"name": "env", "text": "2 s", "is_main": True, "is_error": False},
        {"name": "parse error", "text": "<b>", "is_main": True, "is_error": True},
        {"name": "version", "text": "7", "is_main": False, "is_error": False},
    ]
    end = {
        "facts": [
            {"name": "status", "text": "truncated", "is_error": False},
            {"name": "error", "text": "no\nanswer", "is_error": True},
        ],
        "last": "wait",
    }
    show(page, {**of_roles(("thought", ["a"]), facts=facts), "end": end})
    assert page.texts(".rdx-round-facts > span") == ["env 2 s"]
    line = page.find(".rdx-round-facts").get_attribute("title")
    assert line == "env 2 s\nparse error <b>\nversion 7"
    assert page.texts(".rdx-round > .rdx-failed") == ["parse error <b>"]
    assert page.texts(".rdx-end > p") == [
        "status truncated",
        "error no↵\nanswer",
        "last action: wait",
    ]
    show(page, {**sample_of(["a"]), "end": {"facts": [], "last": ""}})
    said = ["The file does not say how the episode ended."]
    assert page.texts(".rdx-end > p") == said


def test_observations_are_read_in_place(page: PartsPage) -> None:
    long = "\n".join(f"line {number}" for number in range(20))
    error = f"Traceback (most recent call last):\n{long}"
    turns = [
        {"role": "tool", "text": error, "num_images": 0, "error": error},
        {"role": "user", "text": "<b>now</b>", "num_images": 2, "error": ""},
    ]
    gap = {"start": 0, "stop": 9, "before": 0, "num_tokens": 9, "num_image_tokens": 3}
    show(page, {**sample_of(["a"]), "gaps": [{**gap, "turns": turns, "rest": []}]})
    tool, user = page.find(".rdx-turn").all()
    assert user.text_content() == "user <b>now</b>2 pictures"
    assert "rdx-failed" in (tool.get_attribute("class") or "")
    assert "rdx-failed" not in (user.get_attribute("class") or "")
    words = tool.locator(".rdx-words-of-turn")
    height = "one => one.getBoundingClientRect().height"
    short = words.evaluate(height)
    tool.get_by_role("button", name="whole text").click()
    assert words.evaluate(height) > 2 * short


def test_a_filter_changes_the_means_that_stand_beside_it(page: PartsPage) -> None:
    show(page, sample_of(["a", "b", "c"], [0.25, -0.75, math.nan]))
    facts = page.find(".rdx-round-head > .rdx-facts")
    assert facts.text_content() == "3 tokens · mean |diff| 0.5 · 1 token not finite"
    page.run("text.setKept(Uint8Array.of(0, 1, 0));")
    assert facts.text_content() == "1 of 3 kept · mean |diff| 0.75"
    page.run("text.setKept(Uint8Array.of(0, 0, 0));")
    assert facts.text_content() == "0 of 3 kept"
    page.run("text.setKept(null);")
    assert facts.text_content() == "3 tokens · mean |diff| 0.5 · 1 token not finite"


def test_long_rounds_are_chunked_at_their_lines(page: PartsPage) -> None:
    show(page, sample_of([*["a"] * 299, "\n", *["b"] * 900]))
    expect(page.find(".rdx-chunk")).to_have_count(3)
    chunks = "[...document.querySelectorAll('.rdx-chunk')]"
    assert page.run(f"return {chunks}.map(one => Number(one.dataset.first));") == [
        0,
        300,
        1100,
    ]
    page.find(SPANS).nth(1150).click()
    assert page.said == [["token", 0, 1150, 1150]]

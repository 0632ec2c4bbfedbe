"""A trajectory without a difference: of one engine, or of texts alone."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

import rounddiag as rd
from rounddiag.vision import EncodedScreenshot
from rounddiag.widgets.lists import PAGE, drawer_list
from rounddiag.widgets.session import Session
from tests.browser.direct import DirectPage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

TASK = "Set the second column to bold and save the file."
THOUGHT = "<think>I see the table.</think>"
# Of what is on the screen.
_TEXTS = """node => [...node.querySelectorAll('*')]
  .filter(leaf => !leaf.children.length && leaf.checkVisibility())
  .map(leaf => `${leaf.className}: ${leaf.textContent}`)"""
SCROLL = "(list, row) => { list.scrollTop = 24 * row; }"
ACTIONS = ("click(10, 20)", "clik(30, 4)", "finished()")


def picture(color: str) -> EncodedScreenshot:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 40), color).save(buffer, format="PNG")
    return EncodedScreenshot(data=buffer.getvalue())


def trajectories(*, engine: bool) -> rd.Batch:
    """Four attempts of two and three rounds; every other one is solved."""
    samples = []
    for sample in range(4):
        turns: list[tuple[Any, ...]] = [("user", TASK, [picture("red")])]
        for index, action in enumerate(ACTIONS[sample % 2 :]):
            text = f"{THOUGHT} {action}"
            tokens = [THOUGHT, " ", action]
            scores = [-0.5, -0.25, -1.0 - index]
            more = [[], tokens, scores] if engine else []
            turns += [("assistant", text, *more), ("tool", "Error: no such action")]
        samples.append(turns)
    keys = [(s, r) for s in range(4) for r in range(3 - s % 2)]
    return rd.Batch.from_turns(
        samples,
        rewards=[0.0, 1.0, 0.5, 1.0],
        group_ids=["a", "a", "a", "b"],
        sample_columns={"status": np.array(["done", "cut", "done", "done"])},
        round_columns={
            "sample": np.array([sample for sample, _ in keys]),
            "round": np.array([index for _, index in keys]),
            "sampling_seconds": np.linspace(0.5, 2.0, len(keys)),
            # As a loader keeps a nested field beside the column that it fills.
            **dict.fromkeys(("info.error", "error"), np.array(["lost", *[""] * 9])),
        },
        meta={"source": "trajectories.jsonl"},
    )


def open_samples(node: Locator) -> None:
    """Open the list of samples; without log-probs it is open from the start."""
    tab = node.locator("[role=tab][data-name='samples']")
    if tab.get_attribute("aria-selected") != "true":
        tab.click()
    expect(tab).to_have_attribute("aria-selected", "true")


@pytest.fixture(scope="module", params=[False, True], ids=["texts", "one engine"])
def one_page(
    request: pytest.FixtureRequest, chromium: Browser
) -> Iterator[tuple[DirectPage, bool]]:
    explorer = rd.explore(trajectories(engine=request.param), current={"sample": 0})
    opened = DirectPage(chromium, explorer, size=(1280, 800))
    yield opened, request.param
    assert opened.complaints == []
    opened.close()


@pytest.fixture
def page(one_page: tuple[DirectPage, bool]) -> tuple[DirectPage, bool]:
    """The explorer as when it has just opened."""
    opened, _ = one_page
    opened.find("[role=search] [type=search]").fill("")
    opened.reset()
    return one_page


def test_all_works_but_what_compares(page: tuple[DirectPage, bool]) -> None:
    opened, has_engine = page
    sentence = opened.explorer.batch.lacks("old", "rollout")
    assert sentence is not None
    assert sentence in opened.text(".rdx-verdict > summary")
    assert opened.text(".rdx-task") == f"task {TASK}"
    metrics = opened.texts(".rdx-choices [aria-label='Metric'] label")
    assert metrics == ["surprise" if has_engine else "action", "length", "time"]
    assert not opened.find(".rdx-threshold").is_visible()
    assert opened.find("[aria-label='Tokens']").is_visible() == has_engine
    values = opened.texts(".rdx-card-line:last-child")
    rounds = rd.round_frame(opened.explorer.batch)
    sizes = rounds["num_tokens"][rounds["sample"] == 0]
    lengths = [f"{size} words" for size in sizes]
    surprises = [f"surprise {mean} nat" for mean in ("0.583", "0.917", "1.25")]
    assert values == (surprises if has_engine else lengths)
    texts = opened.node.evaluate(_TEXTS)
    assert [text for text in texts if "not finite" in text] == []
    # Highest reward first; all rows are reached by keys.
    assert opened.page.evaluate("page.samples()") == [1, 3, 2, 0]
    opened.press("k")
    expect(opened.find(".rdx-title")).to_contain_text("Sample 2 ·")
    opened.press("n")
    expect(opened.find(".rdx-failed q").first).to_have_text("clik(30, 4)")
    assert opened.texts(".rdx-turn:has(b)")[0] == f"user {TASK}1 picture"
    box = opened.find("[role=search] [type=search]")
    box.fill("finished")
    expect(opened.find(".rdx-count")).to_have_text("1 hit")
    box.press("Enter")
    expect(opened.find(".rdx-card[aria-current='true'] b")).to_have_text("2")
    box.fill("3 r1")
    box.press("Enter")
    expect(opened.find(".rdx-title")).to_contain_text("Sample 3 ·")
    while opened.explorer.current["sample"] != 3:  # the page tells it a moment later
        opened.settle()
    opened.explorer.state = {"filter": {"status": ["done"]}, "current": {"sample": 0}}
    opened.settle()
    assert opened.page.evaluate("page.samples()") == [3, 2, 0]
    opened.press("m")
    expect(opened.find(".rdx-attempt .rdx-round-action").first).to_have_text(
        "click (10, 20)"
    )
    opened.page.keyboard.press("Escape")
    open_samples(opened.node)
    rows = opened.find(".rdx-list-rows button")
    expect(rows).to_have_count(3)
    cells = rows.first.locator(".rdx-cell").all_text_contents()
    assert cells[:3] == ["3", "1", "done"]


def test_a_trajectory_says_how_it_ended_and_what_failed(
    page: tuple[DirectPage, bool],
) -> None:
    opened, _ = page
    # It says so itself; rewards that are not all 0 or 1 say nothing of success.
    assert opened.text(".rdx-outcome") == "finished"
    # The observation after each round is an error.
    assert opened.texts(".rdx-errors > b") == ["3 errors"]
    assert opened.find(".rdx-error-mark").count() == 3
    assert opened.text(".rdx-errors > button") == "round 0: lost"
    lines = opened.texts(".rdx-round-head ~ .rdx-failed")
    assert [line for line in lines if "lost" in line] == ["error lost"]
    opened.find(".rdx-errors > button").last.click()
    expect(opened.find(".rdx-card[aria-current='true'] b")).to_have_text("2")


def test_trajectories_are_the_first_list_and_are_sorted(
    page: tuple[DirectPage, bool],
) -> None:
    opened, _ = page
    lists = "[aria-label='Lists'] [role=tab]:visible"
    assert opened.texts(lists) == ["Samples", "Rounds", "Notes"]
    open_samples(opened.node)
    head = opened.find(".rdx-list-head").get_by_role("button", name="sample")
    head.click()
    expect(head).to_have_text("sample ▼")
    first = opened.find(".rdx-list-rows .rdx-cell").first
    expect(first).to_have_text("3")
    head.click()
    expect(head).to_have_text("sample ▲")
    expect(first).to_have_text("0")
    opened.explorer.state = {"filter": {"status": ["done"]}}
    opened.settle()
    assert opened.texts(lists) == ["Samples", "Rounds", "Selection", "Notes"]


def test_few_trajectories_have_the_whole_width(chromium: Browser) -> None:
    batch = trajectories(engine=False)
    opened = DirectPage(chromium, rd.explore(batch[[0, 1]]), size=(1280, 800))
    assert not opened.find(".rdx-overview").is_visible()
    width = "node => node.getBoundingClientRect().width"
    assert opened.find(".rdx-sample").evaluate(width) > 0.9 * 1280
    assert opened.texts(".rdx-focus > :visible") == opened.texts(".rdx-note-field")
    opened.press("j")
    expect(opened.find(".rdx-title")).to_contain_text("Sample 0 ·")  # lower reward
    opened.resize(700, 800)
    assert opened.find(".rdx-sample").is_visible()
    opened.press("Escape")
    assert opened.complaints == []
    opened.close()


def test_a_report_sorts_all_trajectories_as_the_explorer_does(
    chromium: Browser, tmp_path: Path
) -> None:
    num = PAGE + 50
    turns = [
        [("user", f"Do {(7 * at) % num:03}."), ("assistant", "go")] for at in range(num)
    ]
    batch = rd.Batch.from_turns(turns, rewards=[at % 3 / 4 for at in range(num)])
    file = tmp_path / "report.html"
    rd.report(batch, file, worst=1, samples=1)
    opened = chromium.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(file.as_uri())
    looked_at = Session(batch, {})
    # Without log-probs it is open from the start.
    samples = opened.locator("[role=tab][data-name='samples']")
    expect(samples).to_have_attribute("aria-selected", "true")
    for head, is_ascending in (("task", True), ("reward", False), ("reward", True)):
        opened.locator(".rdx-list-head").get_by_role("button", name=head).click()
        sort = {"head": head, "is_ascending": is_ascending}
        for start, row in ((0, 0), (PAGE, num - 1)):
            page = drawer_list(looked_at, "samples", start, sort=sort)
            wanted = page["places"][row - start]
            opened.locator(".rdx-list").evaluate(SCROLL, row)
            cell = opened.locator(f".rdx-list-rows [data-row='{row}'] .rdx-cell").first
            expect(cell).to_have_text(str(wanted["sample"]))
    assert "lowest first" in (opened.locator(".rdx-list-what").text_content() or "")
    assert errors == []
    opened.close()


@pytest.mark.parametrize("engine", [False, True])
def test_a_report_shows_the_same(
    chromium: Browser, tmp_path: Path, *, engine: bool
) -> None:
    file = tmp_path / "report.html"
    rd.report(trajectories(engine=engine), file)
    opened = chromium.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(file.as_uri())
    expect(opened.locator(".rdx-task")).to_contain_text(TASK)
    assert opened.locator(".rdx-round-head").count() > 1
    assert errors == []
    opened.close()


def test_a_key_without_an_effect_says_why(chromium: Browser) -> None:
    osworld = rd.explore("sample_data/osworld", current={"sample": 4, "round": 0})
    page = DirectPage(chromium, osworld, size=(1280, 800))
    assert page.texts(".rdx-outcome") == ["! error"]  # of the model's server
    for key, why in (("c", "no context"), ("m", "no other attempt"), ("v", "rd.ask(")):
        page.press(key)
        expect(page.find(".rdx-chosen")).to_contain_text(why)
        expect(page.find(".rdx-chosen")).to_be_in_viewport()
    page.press("n")
    expect(page.find(".rdx-chosen")).to_be_hidden()
    assert page.complaints == []
    page.close()


@pytest.mark.parametrize("num_rounds", [1, 2])
def test_signs_and_rewards_of_many_samples_do_not_touch(
    chromium: Browser, num_rounds: int
) -> None:
    num = 40
    turns = [("user", TASK), ("assistant", "click(10, 20)")] * num_rounds
    batch = rd.Batch.from_turns([turns] * num, rewards=[*np.linspace(0, 1, num)])
    page = DirectPage(chromium, rd.explore(batch), size=(1280, 800))
    texts = page.find(".rdx-figure[aria-label=Samples] .heatmap-label text")
    boxes = texts.evaluate_all("""all => all.filter(one => one.textContent)
      .map(one => one.getBoundingClientRect().toJSON())""")
    assert len(boxes) >= num  # a reward each
    rows = sorted({round(box["y"] + box["height"] / 2) for box in boxes})
    assert len(rows) == num
    assert max(box["height"] for box in boxes) <= 1.3 * np.diff(rows).min()
    page.close()

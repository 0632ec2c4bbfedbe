"""What one does daily: facts that filter, going to places, notes, film, attempts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from playwright.sync_api import expect

import rounddiag as rd
from tests.browser.conftest import ROOT
from tests.browser.direct import DirectPage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

START = {"sample": 3, "round": 1, "token": 2}


@pytest.fixture(scope="module")
def batch() -> rd.Batch:
    """The sample of a step, with what a trainer knows of its tokens."""
    made = rd.load(ROOT / "sample_data" / "image_window.parquet")
    sample = torch.repeat_interleave(torch.arange(made.num_samples), made.lengths)
    mask = made.response_mask.clone()
    mask[sample == START["sample"]] = 0
    facts = {"rollout_is": "token", "rollout_is_threshold": 2.0}
    return replace(
        made,
        entropy=-made.log_probs("rollout"),
        advantages=torch.where(sample % 2 == 0, 0.5, -0.25),
        loss_mask=mask,
        meta={**made.meta, "rollout_correction": facts},
        sample_columns={**made.sample_columns, "rank": np.arange(64) % 4},
    )


@pytest.fixture(scope="module")
def opened(chromium: Browser, batch: rd.Batch) -> Iterator[DirectPage]:
    page = DirectPage(chromium, rd.explore(batch, current=START), size=(1440, 900))
    yield page
    assert page.complaints == []
    page.close()


@pytest.fixture
def page(opened: DirectPage) -> DirectPage:
    for name in ("filter", "by", "notes", "text_color", "threshold"):
        default: dict[str, Any] = {"filter": {}, "notes": [], "text_color": "diff"}
        default["by"] = None
        opened.explorer.state = {name: default.get(name, 0.693)}
    opened.explorer.current = START
    opened.settle()
    return opened


def knows(page: DirectPage, **wanted: Any) -> None:
    """Wait until Python has entries of the state, and the page has drawn them."""
    for _ in range(100):
        if all(page.explorer.state[key] == one for key, one in wanted.items()):
            page.settle()
            return
        page.page.wait_for_timeout(50)
    found = {key: page.explorer.state[key] for key in wanted}
    assert found == wanted


def go_to(page: DirectPage, text: str) -> None:
    page.press("/")
    page.find("[role=search] input[type=search]").fill(text)
    page.page.keyboard.press("Enter")


def facts(page: DirectPage) -> dict[str, str]:
    names, values = page.texts(".rdx-focus dt"), page.texts(".rdx-focus dd")
    return dict(zip(names, values, strict=True))


def test_a_fact_of_the_sample_filters_by_it_and_takes_it_back(page: DirectPage) -> None:
    chips = page.texts(".rdx-sample-facts > *")
    groups = page.explorer.batch.group_ids
    assert groups is not None
    group = groups[START["sample"]]
    assert chips[0].startswith("reward ")
    assert [one.partition(" ")[0] for one in chips[1:3]] == ["status", "rank"]
    assert chips[3].startswith(f"3 others of {group}: ")
    assert {"rank 3", f"group_id {group}"} <= {*chips}
    page.find(".rdx-chip[data-name=rank]").click()
    knows(page, filter={"rank": [3]})
    expect(page.find(".rdx-chip[data-name=rank]")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.find(".rdx-chip[data-name=rank]").click()
    knows(page, filter={})


def test_what_the_filter_drops_is_dimmed_everywhere(page: DirectPage) -> None:
    page.explorer.state = {"filter": {"round": [1], "role": ["thought"]}}
    page.settle()
    expect(page.find(".rdx-card.rdx-dropped")).to_have_count(
        page.find(".rdx-card").count() - 1
    )
    kept = page.find(".rdx-chunk > span:not(.rdx-dropped)").all_text_contents()
    frame = rd.token_frame(page.explorer.batch, ["role", "text"])
    own = frame[(frame["sample"] == START["sample"]) & (frame["round"] == 1)]
    assert kept == own.loc[own["role"] == "thought", "text"].tolist()
    stems = page.page.evaluate(
        "() => document.querySelector('[aria-label=Tokens] .rdx-plot').data"
        ".filter(one => one.fill === 'tozeroy').map(one => one.x.length / 4)"
    )
    assert sum(stems[1:]) == len(kept)  # the first has what is dropped
    page.explorer.state = {"filter": {}}
    page.settle()
    expect(page.find(".rdx-dropped")).to_have_count(0)


def test_one_box_goes_to_samples_rounds_tokens_ids_and_texts(page: DirectPage) -> None:
    ids = page.explorer.batch.sample_ids
    assert ids is not None
    for text, place in (
        ("8", {"sample": 8}),
        ("9 r1 t4", {"sample": 9, "round": 1, "token": 4}),
        ("r2", {"sample": 9, "round": 2}),
        ("t3", {"sample": 9, "round": 2, "token": 3}),
        (ids[3], {"sample": 3}),
        (f"{ids[4]} / r1 / t2", {"sample": 4, "round": 1, "token": 2}),
        ("step 1584 / sample 5 / r1 / t3", {"sample": 5, "round": 1, "token": 3}),
    ):
        go_to(page, text)
        page.settle()
        page.page.wait_for_timeout(120)
        page.settle()
        current = page.explorer.current
        assert {key: current[key] for key in place} == place, text
    page.find("[role=search] input[type=search]").fill('"8"')  # not sample 8
    assert "hit" in page.text(".rdx-count")


def test_a_search_of_all_samples_is_a_list_of_hits(page: DirectPage) -> None:
    page.find(".rdx-all").click()
    go_to(page, "CLICK(")
    rows = page.find(".rdx-list-hits [data-row]")
    expect(rows.first).to_be_visible()
    lists = page.texts("[aria-label='Lists'] [role=tab]:visible")
    assert lists[-2:] == ["Hits", "Notes"]  # no other tab has moved
    rows.nth(1).click()
    page.settle()
    page.page.wait_for_timeout(120)
    here = page.explorer.current
    frame = rd.token_frame(page.explorer.batch, ["text"])
    at = frame[(frame[["sample", "round", "token"]] == list(here.values())).all(axis=1)]
    assert at["text"].item().strip().startswith("click")
    search = page.find("[role=search] input[type=search]")
    search.fill("")
    expect(page.find(".rdx-list-hits")).to_contain_text("Type a text")
    assert page.texts("[aria-label='Lists'] [role=tab]:visible") == lists
    page.find(".rdx-all").click()


def test_a_key_goes_to_the_next_token_beyond_the_threshold(page: DirectPage) -> None:
    page.explorer.state = {"threshold": 1.0}
    page.settle()
    frame = rd.token_frame(page.explorer.batch)
    beyond = frame[frame["diff"].abs() > 1.0]
    order = page.page.evaluate("page.samples()")
    keys = ["sample", "round", "token"]
    wanted = beyond.sort_values(keys).sort_values(
        "sample", key=lambda one: one.map(order.index), kind="stable"
    )[keys]
    first = tuple(wanted.iloc[0])
    page.explorer.current = dict(zip(keys, map(int, first), strict=True))
    page.settle()
    for place in wanted.iloc[1:4].itertuples(index=False):
        page.press("b")
        knows(page, current={key: int(getattr(place, key)) for key in keys})
    page.press("Shift+B")
    knows(page, current={key: int(wanted.iloc[2][key]) for key in keys})


def test_bars_say_which_value_and_filter_by_it(page: DirectPage) -> None:
    page.explorer.state = {"by": "status"}
    page.settle()
    frame = rd.token_frame(page.explorer.batch, ["status"])
    means = frame["diff"].abs().groupby(frame["status"]).mean().sort_values()
    assert page.texts(".rdx-group > :first-child") == [*means.index[::-1]]
    page.find(".rdx-group").first.click()
    knows(page, filter={"status": [means.index[-1]]})
    pressed = page.find(".rdx-group[aria-pressed=true]")
    expect(pressed).to_have_count(1)
    pressed.click()
    knows(page, filter={})


def test_numbers_of_a_wide_axis_of_groups_are_whole_and_apart(page: DirectPage) -> None:
    page.explorer.state = {"by": "role"}
    page.settle()
    figure = page.find("[aria-label='Rounds']")
    left = figure.evaluate("node => node.getBoundingClientRect().left")
    ticks = figure.locator(".ytick text")
    boxes = [
        box for at in range(ticks.count()) if (box := ticks.nth(at).bounding_box())
    ]
    assert len(boxes) > 1
    assert min(box["x"] for box in boxes) >= left
    boxes.sort(key=lambda box: box["y"])
    for above, below in pairwise(boxes):
        assert above["y"] + above["height"] <= below["y"] + 2  # of their line height


def test_check_boxes_of_the_filter_have_counts(page: DirectPage) -> None:
    page.find("summary[aria-label='Filter by text or any column']").click()
    page.node.get_by_label("column", exact=True).select_option("rank")
    counts = page.find(".rdx-of-value")
    expect(counts).to_have_count(4)
    frame = rd.token_frame(page.explorer.batch, ["rank"])
    num = frame["rank"].value_counts().sort_index()
    assert counts.all_text_contents() == [f"{one:,} tokens" for one in num]
    page.press("Escape")


def test_the_text_can_be_coloured_by_other_numbers(page: DirectPage) -> None:
    colour = page.node.get_by_label("colour", exact=True)
    options = colour.locator("option").all_text_contents()
    assert options == ["diff", "probability", "entropy", "advantage", "mask", "weight"]
    colour.select_option("loss_mask")
    knows(page, text_color="loss_mask")
    spans = page.find(".rdx-chunk > span")
    expect(page.find(".rdx-chunk > .rdx-g8")).to_have_count(spans.count())  # masked
    colour.select_option("advantage")
    knows(page, text_color="advantage")
    expect(page.find(".rdx-chunk > .rdx-g8.rdx-neg")).to_have_count(spans.count())
    found = facts(page)
    assert (found["training"], found["advantage"]) == (
        "masked: not in the loss",
        "−0.25",
    )
    colour.select_option("diff")
    knows(page, text_color="diff")
    expect(page.find(".rdx-chunk > .rdx-g8")).to_have_count(0)


def test_a_weight_above_the_limit_is_truncated(page: DirectPage) -> None:
    frame = rd.token_frame(page.explorer.batch, ["importance_weight"])
    frame = frame[frame["sample"] != START["sample"]]
    worst = frame.iloc[int(frame["importance_weight"].to_numpy().argmax())]
    page.explorer.current = {k: int(worst[k]) for k in ("sample", "round", "token")}
    page.settle()
    found = facts(page)
    assert found["training"].endswith("truncated at 2")


def test_space_plays_the_rounds_and_arrows_step(page: DirectPage) -> None:
    film = page.find(".rdx-film")
    page.press("Space")
    expect(film).to_have_attribute("aria-pressed", "true")
    page.press("ArrowLeft")
    now = page.find(".rdx-card[aria-current=true]")
    expect(now).to_have_attribute("data-round", "0")
    expect(now).to_have_attribute("data-round", "1")  # a second later
    page.press("Space")
    expect(film).to_have_attribute("aria-pressed", "false")


def test_a_note_is_listed_marked_and_kept_in_the_state(page: DirectPage) -> None:
    field = page.node.get_by_label("note", exact=True)
    field.fill("<b>wrong</b> digit")
    field.press("Enter")
    expect(page.node).to_be_focused()
    note = {**START, "text": "<b>wrong</b> digit"}
    knows(page, notes=[note])
    assert repr([note]) in page.explorer.to_code()
    expect(page.find(".rdx-chunk > .rdx-noted")).to_have_count(1)
    page.node.get_by_role("tab", name="Notes", exact=True).click()
    expect(page.find(".rdx-list-notes [data-row]")).to_have_text(
        "<b>wrong</b> digitstep 1584 / task-00/3 / r1 / t2"
    )
    page.press("p")
    expect(field).to_have_value("")
    page.find(".rdx-list-notes [data-row]").click()
    expect(field).to_have_value("<b>wrong</b> digit")
    field.fill("")
    field.press("Enter")
    knows(page, notes=[])


def test_rounds_and_samples_have_notes_too_by_keyboard_alone(page: DirectPage) -> None:
    field = page.node.get_by_label("note", exact=True)
    scope = page.node.get_by_label("note on", exact=True)
    options = scope.locator("option").all_text_contents()
    assert options == ["token 2", "round 1", "sample 3"]
    notes = []
    for name, keys in (("round", ["sample", "round"]), ("sample", ["sample"])):
        page.press("N", "Tab", name[0])
        expect(scope).to_have_value(name)
        page.page.keyboard.press("Shift+Tab")
        page.page.keyboard.type(f"of the {name}")
        page.page.keyboard.press("Enter")
        notes.append({**{key: START[key] for key in keys}, "text": f"of the {name}"})
        knows(page, notes=notes)
    head = page.find(".rdx-round[data-round='1'] > .rdx-round-head > .rdx-note-mark")
    expect(head).to_have_text("✎ of the round")
    expect(page.find(".rdx-sample-line > .rdx-note-mark")).to_have_text(
        "✎ of the sample"
    )
    expect(page.find(".rdx-chunk > .rdx-noted")).to_have_count(0)
    rows = page.find(".rdx-list-notes [data-row]")
    if not rows.count():
        page.node.get_by_role("tab", name="Notes", exact=True).click()
    expect(rows).to_have_text(
        ["of the roundstep 1584 / task-00/3 / r1", "of the samplestep 1584 / task-00/3"]
    )
    page.press("j")
    expect(head).to_have_count(0)
    rows.first.click()
    expect(field).to_have_value("of the round")
    expect(head).to_have_count(1)
    scope.select_option("token")
    expect(field).to_have_value("")


def test_two_attempts_at_a_task_stand_side_by_side(page: DirectPage) -> None:
    page.press("m")
    articles = page.find(".rdx-attempts article")
    batch = page.explorer.batch
    assert batch.group_ids is not None
    assert batch.rewards is not None
    mates = np.flatnonzero(
        np.array(batch.group_ids) == batch.group_ids[START["sample"]]
    )
    own = batch.rewards[START["sample"]]
    other = next(int(one) for one in mates if batch.rewards[one] != own)
    names = articles.evaluate_all("all => all.map(one => one.ariaLabel)")
    assert names[:2] == [
        f"sample {START['sample']}, round 0",
        f"sample {other}, round 0",
    ]
    expect(page.find(".rdx-attempt img").nth(1)).to_be_visible()
    page.node.get_by_label("attempt 2", exact=True).select_option(str(mates[0]))
    expect(articles.nth(1)).to_have_attribute(
        "aria-label", f"sample {mates[0]}, round 0"
    )
    articles.nth(3).locator(".rdx-card").click()
    expect(page.find(".rdx-title")).to_contain_text(f"Sample {mates[0]} ·")
    expect(page.find(".rdx-sheet")).to_be_hidden()

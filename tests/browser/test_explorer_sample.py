"""The explorer's right side and its list of the worst, used with mouse and keys."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Locator, expect

import rounddiag as rd
from rounddiag.figures._parts.labels import format_number
from tests.browser.explored import Explored, at, worst
from tests.browser.explorers import waits_for

# A sample that clicks, scrolls and types, with 8 rounds.
SAMPLE = 35
# Where a ring is drawn, as shares of the picture under it.
_PLACE = """marker => {
  const ring = marker.querySelector('circle').getBoundingClientRect();
  const image = marker.parentElement.querySelector('img').getBoundingClientRect();
  return [
    (ring.left + ring.width / 2 - image.left) / image.width,
    (ring.top + ring.height / 2 - image.top) / image.height,
  ];
}"""
_START = """(node, round) => {
  const { rounds, starts } = node.querySelector('.rdx-plot').layout.meta;
  return starts[rounds.indexOf(round)];
}"""


@pytest.fixture(scope="module")
def tokens(seen: rd.Batch) -> pd.DataFrame:
    columns = ["text", "role", "position", "token_id", "entropy"]
    pair = ["old_log_prob", "rollout_log_prob"]
    return rd.token_frame(seen, [*columns, *pair])


@pytest.fixture
def sample(tokens: pd.DataFrame) -> pd.DataFrame:
    return tokens[tokens["sample"] == SAMPLE].reset_index(drop=True)


def worst_in(tokens: pd.DataFrame, round_: int) -> int:
    """Return the token of a round with the largest |diff|."""
    return worst(tokens[tokens["round"] == round_])


def texts(sample: pd.DataFrame) -> list[str]:
    return ["".join(pieces) for _, pieces in sample.groupby("round")["text"]]


def first_of(figure: Locator, round_: int) -> float:
    """Return where a round begins on the axis of the token plot."""
    found: float = figure.evaluate(_START, round_)
    return found


def test_the_title_says_which_sample_it_is(
    explored: Explored, seen: rd.Batch, sample: pd.DataFrame
) -> None:
    assert seen.sample_ids is not None
    assert explored.text(".rdx-title") == (
        f"Sample {SAMPLE} · {seen.sample_ids[SAMPLE]} · 8 rounds · {len(sample)} tokens"
    )


def test_the_strip_shows_every_round_with_its_picture_action_and_value(
    explored: Explored, sample: pd.DataFrame
) -> None:
    cards = explored.find(".rdx-card")
    explored.lab.set_width(1600)  # where the cards have pictures
    expect(cards.locator("img")).to_have_count(8)
    explored.lab.set_width(1280)
    labels = explored.texts(".rdx-card-action")
    for text, label in zip(texts(sample), labels, strict=True):
        assert label.split(" ")[0] in text
    means = sample.groupby("round")["diff"].agg(lambda diff: diff.abs().mean())
    assert explored.texts(".rdx-card-line:last-child > :last-child") == [
        format_number(float(mean)) for mean in means
    ]
    widths = cards.locator(".rdx-bar").evaluate_all(
        "all => all.map(one => parseFloat(one.style.width))"
    )
    assert widths[np.argmax(means)] == max(widths) > widths[np.argmin(means)] >= 0
    cards.nth(2).click()
    explored.is_at(SAMPLE, 2, worst_in(sample, 2))


def test_a_click_on_a_token_of_the_text_moves_all_to_it(
    explored: Explored, sample: pd.DataFrame
) -> None:
    index = int(np.flatnonzero(sample["round"] == 2)[3])
    explored.find(".rdx-chunk > span").nth(index).click()
    explored.is_at(SAMPLE, 2, 3)
    figure = explored.token_figure
    line = explored.find(".rdx-here").bounding_box()
    assert line is not None
    assert line["x"] == pytest.approx(at(figure, first_of(figure, 2) + 3)[0], abs=1)
    expect(explored.find(".rdx-current figcaption b")).to_have_text("round 2")


def test_a_click_in_the_token_plot_moves_the_text_to_it(
    explored: Explored, sample: pd.DataFrame
) -> None:
    index = int(np.flatnonzero(sample["round"] == 6)[5])
    figure = explored.token_figure
    explored.click(figure, first_of(figure, 6) + 5)
    explored.is_at(SAMPLE, 6, 5)
    marked = explored.find(".rdx-chunk > .rdx-now")
    assert marked.text_content() == sample["text"][index]
    box, around = marked.bounding_box(), explored.find(".rdx-scroller").bounding_box()
    assert box is not None
    assert around is not None
    assert 0 < box["y"] - around["y"] < around["height"] - box["height"]


def test_a_click_is_marked_where_it_was(explored: Explored) -> None:
    marker = explored.find(".rdx-current .rdx-marker")
    marker.scroll_into_view_if_needed()
    # It wrote click(48, 85) of a picture of 448 x 336 pixels.
    assert explored.texts(".rdx-current figcaption b") == ["round 4"]
    shares = [48 / 448, 85 / 336]
    assert marker.evaluate(_PLACE) == pytest.approx(shares, abs=0.01)
    assert explored.text(".rdx-caption-action") == "click (48, 85)"


def test_the_picture_that_the_action_led_to_is_beside(explored: Explored) -> None:
    names = explored.find(".rdx-screens figure b")
    expect(names).to_have_text(["round 4", "after round 4"])
    explored.find(".rdx-card").last.click()
    expect(names).to_have_text(["round 7"])


def test_a_picture_is_large_on_demand(explored: Explored, seen: rd.Batch) -> None:
    assert seen.images is not None
    explored.find(".rdx-current .rdx-enlarge").click()
    large = explored.find(".rdx-stage img")
    expect(large).to_be_visible()
    assert seen.images[SAMPLE][4].size[0] == 448
    expect(large).to_have_js_property("naturalWidth", 448)
    small = explored.find(".rdx-current img").bounding_box()
    box = large.bounding_box()
    assert small is not None
    assert box is not None
    assert box["width"] > small["width"]
    explored.lab.screenshot("explorer_large")
    explored.node.get_by_role("button", name="After the action").click()
    expect(explored.find(".rdx-stage-caption b")).to_have_text("after round 4")
    explored.node.get_by_role("button", name="Close").last.click()
    expect(large).to_be_hidden()


def test_special_tokens_and_white_space_are_seen(
    explored: Explored, sample: pd.DataFrame
) -> None:
    special = explored.find(".rdx-chunk > .rdx-special")
    is_end = sample["text"] == "<|im_end|>"
    assert special.all_text_contents() == ["<|im_end|>"] * int(is_end.sum())
    spaces = explored.find(".rdx-chunk > span").filter(has_text="·")
    assert spaces.count() == int((sample["text"] == " ").sum()) > 0


def test_an_observation_opens(explored: Explored, seen: rd.Batch) -> None:
    gap = explored.find(".rdx-gap").nth(1)
    chip = gap.get_by_role("button")
    expect(chip).to_have_text("12 image tokens, 20 others")
    assert gap.locator("> .rdx-turn").all_text_contents() == ["user 1 picture"]
    chip.click()
    inside = gap.locator(".rdx-inside > *")
    inside.first.wait_for()
    assert "".join(inside.all_text_contents()).startswith("↵\n<|im_start|>user↵")
    expect(inside.filter(has_text="image token")).to_have_count(1)
    assert chip.get_attribute("aria-expanded") == "true"
    assert seen.tokenizer is not None
    chip.click()
    expect(inside.first).to_be_hidden()


def test_the_panel_tells_all_of_a_token(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    place, keys = (35, 4, 3), ["sample", "round", "token"]
    current = dict(zip(keys, place, strict=True))
    explored.set(repr({"current": current, "threshold": 0.001}))  # beyond it: a rank
    explored.is_at(*place)
    in_round = tokens[(tokens["sample"] == place[0]) & (tokens["round"] == place[1])]
    row = in_round.iloc[place[2]]
    old, rollout = float(row["old_log_prob"]), float(row["rollout_log_prob"])
    assert explored.texts(".rdx-scores td:not(.rdx-bar-room)") == [
        format_number(value)
        for score in (old, rollout)
        for value in (score, math.exp(score))
    ]
    diff = float(row["diff"])
    rank = [
        int((frame["diff"].abs() > abs(diff)).sum()) + 1 for frame in (in_round, tokens)
    ]
    endings = {1: "st", 2: "nd", 3: "rd"}
    places = [
        f"{one}{endings.get(one % 100 if one % 100 < 20 else one % 10, 'th')}"
        for one in rank
    ]
    ranks = f"{places[0]} of {len(in_round)} in the round, {places[1]} of all"
    facts = explored.facts()
    assert facts == {
        "diff, old − rollout": f"{diff:+.3g} nat",
        "ratio, old / rollout": format_number(math.exp(old - rollout)),
        "k3": format_number(math.exp(diff) - 1 - diff),
        "entropy": format_number(float(row["entropy"])),
        "advantage": "not recorded",
        "training": "",
        "by |diff|": ranks,
        "round": f"{place[1]}, token {place[2]}",
        "position": str(row["position"]),
        "token id": str(row["token_id"]),
        "role": row["role"],
    }
    assert explored.text(".rdx-focus-piece") == row["text"]


def rows_of(explored: Explored) -> Any:
    return explored.find(".rdx-list-rows button")


def test_each_of_the_worst_is_a_jump(explored: Explored, tokens: pd.DataFrame) -> None:
    order = tokens["diff"].abs().sort_values(ascending=False, kind="stable").index
    explored.open_list("Tokens")
    expect(explored.find(".rdx-list-what")).to_have_text("by |diff|")
    rows_of(explored).nth(2).click()
    third = tokens.loc[order[2]]
    explored.is_at(*(int(third[key]) for key in ("sample", "round", "token")))
    explored.open_list("Rounds")
    cell = rd.stats.worst_cells(tokens).iloc[1]
    rows_of(explored).nth(1).click()
    sample, round_ = int(cell["sample"]), int(cell["round"])
    explored.is_at(sample, round_, worst_in(tokens[tokens["sample"] == sample], round_))
    explored.open_list("Samples")
    fourth = int(rd.stats.worst_samples(tokens)["sample"].iloc[3])
    rows_of(explored).nth(3).click()
    waits_for(explored.lab, "ex.current['sample']", fourth)
    expect(explored.find(".rdx-title")).to_contain_text(f"Sample {fourth} ·")
    explored.open_list("Tokens")


def test_three_steps_lead_to_the_first_token_without_its_screenshots(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    """Where training dropped screenshots: round 2, the first that is far off."""
    assert explored.state["current"] == {"sample": 35, "round": 4, "token": 3}
    explored.click(explored.rounds_figure, 2)
    explored.knows("filter", {"round": {"from": 2, "to": 2}})
    explored.rest()
    sample = explored.rows()[0]
    explored.click(explored.heatmap, 2, 0)
    round_ = tokens[(tokens["sample"] == sample) & (tokens["round"] == 2)]
    waits_for(explored.lab, "ex.current['sample']", sample)
    explored.rest()
    before = tokens[(tokens["sample"] == sample) & (tokens["round"] < 2)]
    explored.find(".rdx-chunk > span").nth(len(before)).click()
    explored.is_at(sample, 2, 0)
    mean = round_["diff"].abs().mean()
    assert mean > 10 * before["diff"].abs().mean()


def test_the_stems_of_all_tokens_are_two_shapes(
    explored: Explored, sample: pd.DataFrame
) -> None:
    stems = explored.token_figure.locator(".scatterlayer path.js-fill")
    expect(stems).to_have_count(2)
    assert explored.token_figure.locator(".scatterlayer path").count() < 20
    boxes = [stems.nth(number).bounding_box() for number in range(2)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    figure, diff = explored.token_figure, sample["diff"]
    ends = (float(diff.max()), 0.0, float(diff.min()))
    top, zero, bottom = (at(figure, 0, y)[1] for y in ends)
    assert boxes[0]["y"] == pytest.approx(top, abs=1)
    assert boxes[1]["y"] == pytest.approx(zero, abs=1)
    assert boxes[1]["y"] + boxes[1]["height"] == pytest.approx(bottom, abs=1)
    first, last = (
        at(figure, first_of(figure, int(sample["round"].iloc[one])) + token)[0]
        for one, token in ((0, 0), (-1, int(sample["token"].iloc[-1])))
    )
    assert min(box["x"] for box in boxes if box) == pytest.approx(first, abs=4)
    assert max(box["x"] + box["width"] for box in boxes if box) == pytest.approx(
        last, abs=4
    )

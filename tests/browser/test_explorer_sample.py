"""The explorer's right side and its list of the worst, used with mouse and keys."""

from __future__ import annotations

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


def test_title_and_strip_show_the_sample_and_every_round_of_it(
    explored: Explored, seen: rd.Batch, sample: pd.DataFrame
) -> None:
    assert seen.sample_ids is not None
    assert explored.text(".rdx-title") == (
        f"Sample {SAMPLE} · {seen.sample_ids[SAMPLE]} · 8 rounds · {len(sample)} tokens"
    )
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


def test_special_tokens_and_white_space_are_seen(
    explored: Explored, sample: pd.DataFrame
) -> None:
    special = explored.find(".rdx-chunk > .rdx-special")
    is_end = sample["text"] == "<|im_end|>"
    assert special.all_text_contents() == ["<|im_end|>"] * int(is_end.sum())
    spaces = explored.find(".rdx-chunk > span").filter(has_text="·")
    assert spaces.count() == int((sample["text"] == " ").sum()) > 0


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

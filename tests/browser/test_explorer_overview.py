"""The explorer's head, controls and left side, used with mouse and keys."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Locator, expect

import rounddiag as rd
from rounddiag.figures._parts.labels import format_number
from rounddiag.wording import percent, with_minus
from tests.browser.explored import Explored, at, traces, worst
from tests.browser.explorers import waits_until

LN_2 = float(np.log(2))


@pytest.fixture(scope="module")
def tokens(seen: rd.Batch) -> pd.DataFrame:
    return rd.token_frame(seen, ["text", "role"])


def beyond(tokens: pd.DataFrame, threshold: float = LN_2) -> str:
    """Say of some tokens what the explorer says of those that its filter keeps."""
    is_beyond = tokens["diff"].abs() > threshold
    num, size = int(is_beyond.sum()), len(tokens)
    share = percent(num / size).replace("%", " %")
    num_samples = tokens["sample"][is_beyond].nunique()
    nouns = ["sample" if num_samples == 1 else "samples"]
    nouns.append("token" if size == 1 else "tokens")
    parts = (f"{num:,} beyond", share, f"{num_samples} {nouns[0]}")
    return " · ".join([*parts, f"of {size:,} {nouns[1]}"])


def draws_means(
    figure: Locator, summary: pd.DataFrame, kind: str = "lines+markers"
) -> None:
    """Wait until a figure has a trace of the means of a round summary."""
    rounds, means = summary["round"].tolist(), summary["mean"].tolist()

    def is_drawn() -> bool:
        return any(
            np.round(x).tolist() == rounds and y == pytest.approx(means)
            for x, y in traces(figure, kind)
        )

    waits_until(is_drawn)


def test_the_verdict_is_that_of_the_diagnosis_and_leads_to_its_findings(
    explored: Explored, tokens: pd.DataFrame, seen: rd.Batch
) -> None:
    found = rd.diagnose(seen)
    verdict = explored.node.get_by_label("Verdict", exact=True).locator("summary")
    # The first sentence, the others, and the names of the families have a line each.
    first, *others = found.sentences
    possible = f"Cause not known; possible: {', '.join(found[0].families)}"
    words = "".join([found.verdict, first, " ".join(others), possible])
    expect(verdict).to_have_text(words)
    # The kernel runs beside the file, which its command names as it is seen from there.
    source = str(seen.meta["source"])
    text = found.text.replace(os.path.relpath(source), Path(source).name)
    expect(verdict).to_have_attribute("title", text)
    verdict.click()
    panel = explored.find(".rdx-verdict > .rdx-panel")
    diff = tokens["diff"].dropna()
    mean, share = (
        with_minus(f"{diff.mean():+.3g}"),
        format_number(100 * float((diff.abs() > 1).mean())),
    )
    expect(panel).to_contain_text(f"mean diff {mean} nat, |diff| > 1 in {share} %")
    panel.get_by_role("button").click()
    rows = explored.find(".rdx-list-rows button")
    expect(rows).to_have_count(len(found))
    expect(rows.first).to_contain_text(found[0].name)
    note = explored.find(".rdx-list-note")
    expect(note).to_contain_text("context and images (3 to 8 images come before")


def test_a_finding_leads_to_its_tokens_and_marks_them(
    explored: Explored, seen: rd.Batch
) -> None:
    first = rd.diagnose(seen)[0].tokens()
    explored.open_list("Findings")
    explored.find(".rdx-list-rows button").first.click()
    explored.knows("finding", 0)
    place = first.iloc[int(first["diff"].abs().to_numpy().argmax())]
    sample = int(place["sample"])
    explored.is_at(*(int(place[key]) for key in ("sample", "round", "token")))
    own = first[first["sample"] == sample]
    expect(explored.find(".rdx-chunk > .rdx-found")).to_have_count(len(own))
    strokes = explored.find(".rdx-found-marks").get_attribute("d") or ""
    assert strokes.count("M") == len(own)


def test_the_current_cell_is_marked(explored: Explored) -> None:
    place = 35, 4
    explored.is_at(*place, 3)
    heatmap = explored.heatmap
    marked = explored.find(".rdx-cell-now").bounding_box()
    assert marked is not None
    middle = (
        marked["x"] + marked["width"] / 2,
        marked["y"] + marked["height"] / 2,
    )
    row = explored.rows().index(place[0])
    assert middle == pytest.approx(at(heatmap, place[1], row), abs=1)


def test_the_metric_is_switched(explored: Explored, seen: rd.Batch) -> None:
    name, words = "diff", "mean old − rollout"
    explored.node.get_by_role("radio", name="signed").check(force=True)
    explored.knows("metric", name)
    title = explored.rounds_figure.locator(".annotation-text").filter(has_text=words)
    expect(title).to_be_visible()
    draws_means(explored.rounds_figure, rd.round_summary(seen, metric=name))
    expect(explored.heatmap.locator(".rdx-notes")).to_contain_text(f"colour: {words}")


def test_a_filter_is_typed(explored: Explored, tokens: pd.DataFrame) -> None:
    explored.filter_by("num_tokens")
    explored.type_into("num_tokens from", "100")
    explored.knows("filter", {"num_tokens": {"from": 100, "to": None}})
    chip = explored.find(".rdx-filter-chips > button")
    expect(chip).to_contain_text("num_tokens: ")
    kept = tokens[tokens.groupby("sample")["token"].transform("size") >= 100]
    assert 0 < len(kept) < len(tokens)
    expect(explored.find(".rdx-beyond")).to_have_text(beyond(kept))
    draws_means(explored.rounds_figure, rd.round_summary(kept))
    chip.click()
    explored.knows("filter", {})
    expect(explored.find(".rdx-beyond")).to_have_text(beyond(tokens))


def test_a_place_is_a_click_from_being_the_filter(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    explored.open_list("In common")
    row = explored.find(".rdx-list-common .rdx-list-rows button").first
    expect(row).to_contain_text("from round 2 on")
    row.click()
    explored.knows("filter", {"round": {"from": 2}})
    expect(row).to_have_attribute("aria-current", "true")
    later = tokens[tokens["round"] >= 2]
    expect(explored.find(".rdx-beyond")).to_have_text(beyond(later))
    worst = later.iloc[int(later["diff"].abs().to_numpy().argmax())]
    place = {key: int(worst[key]) for key in ("sample", "round", "token")}
    explored.knows("current", place)


def test_another_pair_of_scores_is_compared(explored: Explored) -> None:
    explored.field("compare").select_option("ref")
    verdict = explored.find(".rdx-verdict > .rdx-panel")
    expect(verdict).to_contain_text("mean diff −0.25 nat, |diff| > 1 in 0 %")
    assert [explored.state[name] for name in "ab"] == ["ref", "rollout"]
    titles = explored.rounds_figure.locator(".annotation-text")
    expect(titles.filter(has_text="mean |ref − rollout|")).to_be_visible()
    assert explored.facts()["diff, ref − rollout"] == "−0.25 nat"
    explored.field("compare with").select_option("old")
    explored.knows("b", "old")
    expect(titles.filter(has_text="mean |ref − old|")).to_be_visible()
    selected = "ex.selection['diff'].iloc[ex.current['token']]"
    diff = explored.lab.value(f"float({selected})")
    expect(explored.find(".rdx-focus dt").first).to_have_text("diff, ref − old")
    assert explored.facts()["diff, ref − old"] == f"{format_number(diff)} nat"


def test_the_means_are_divided_by_a_column(explored: Explored, seen: rd.Batch) -> None:
    explored.field("by").select_option("status")
    explored.knows("by", "status")
    legend = explored.rounds_figure.locator(".annotation-text")
    for status in ("failed", "solved", "truncated"):
        expect(legend.filter(has_text=status).first).to_be_visible()
    summary = rd.round_summary(seen, by="status")
    for _, rows in summary.groupby("status"):
        draws_means(explored.rounds_figure, rows)


def test_a_cell_tells_what_it_is_made_of(explored: Explored, seen: rd.Batch) -> None:
    sample, round_ = 35, 4
    row = explored.rows().index(sample)
    explored.page.mouse.move(*at(explored.heatmap, round_ + 0.1, row))
    tokens = rd.token_frame(seen)
    is_in = (tokens["sample"] == sample) & (tokens["round"] == round_)
    size = tokens["diff"][is_in].abs()
    p95 = float(np.percentile(size, 95))
    said = explored.heatmap.locator(".rdx-tip")
    for text in (
        *("sample 35 · task-08/3 · reward 0", "round 4", "tokens 18"),
        f"mean |diff| {format_number(size.mean())}",
        f"95th percentile of |diff| {format_number(p95)}",
        f"largest |diff| {format_number(size.max())}",
    ):
        expect(said).to_contain_text(text)
    expect(said.locator("> div")).to_have_count(3)
    tip, pane = said.bounding_box(), explored.heatmap.bounding_box()
    assert tip is not None
    assert pane is not None
    assert tip["x"] >= pane["x"] + pane["width"]  # beside the rows
    explored.lab.screenshot("explorer_hover")


def test_a_round_tells_what_its_mean_is_made_of(
    explored: Explored, seen: rd.Batch
) -> None:
    row = rd.round_summary(seen).iloc[2]
    explored.page.mouse.move(*at(explored.rounds_figure, 2, row["mean"]))
    said = explored.rounds_figure.locator(".rdx-tip")
    for text in (
        *("round 2", f"mean {format_number(row['mean'])} nat"),
        f"{row['num_samples']} samples, {row['num_tokens']} tokens",
    ):
        expect(said).to_contain_text(text)


def test_a_click_chooses_a_cell(explored: Explored, tokens: pd.DataFrame) -> None:
    sample, round_ = 6, 5
    explored.click(explored.heatmap, round_, explored.rows().index(sample))
    is_in = (tokens["sample"] == sample) & (tokens["round"] == round_)
    explored.is_at(sample, round_, worst(tokens[is_in]))
    selection = "ex.selection[['sample', 'round']].drop_duplicates().values.tolist()"
    assert explored.lab.value(selection) == [[sample, round_]]
    assert explored.lab.value("len(ex.selection)") == int(is_in.sum())


def test_a_box_chooses_many_cells(explored: Explored, tokens: pd.DataFrame) -> None:
    rows = explored.rows()
    explored.drag(explored.heatmap, (2.2, 3), (3.8, 6))
    explored.knows("cells", {"samples": rows[3:7], "rounds": [2, 4]})
    is_in = tokens["sample"].isin(rows[3:7]) & tokens["round"].between(2, 4)
    num_rounds = len(tokens[is_in].drop_duplicates(["sample", "round"]))
    expect(explored.find(".rdx-chosen")).to_have_text(
        f"selected: {num_rounds} rounds, {int(is_in.sum())} tokens · explorer.selection"
    )
    assert explored.lab.value("len(ex.selection)") == int(is_in.sum())
    assert explored.lab.value("len(ex.selected_rounds)") == num_rounds
    place = tokens[is_in].iloc[worst(tokens[is_in])]
    explored.is_at(*(int(place[key]) for key in ("sample", "round", "token")))
    explored.lab.screenshot("explorer_box")


def test_both_figures_share_the_axis_of_rounds(explored: Explored) -> None:
    for round_ in (0, 7):
        x = [at(one, round_)[0] for one in (explored.rounds_figure, explored.heatmap)]
        assert x[0] == pytest.approx(x[1], abs=0.5)


def test_a_click_on_a_round_leaves_the_others_out_of_the_heatmap(
    explored: Explored, tokens: pd.DataFrame
) -> None:
    explored.click(explored.rounds_figure, 3)
    explored.knows("filter", {"round": {"from": 3, "to": 3}})
    samples = tokens["sample"][tokens["round"] == 3].unique().tolist()
    waits_until(lambda: sorted(explored.rows()) == samples)
    ((rounds, _),) = traces(explored.rounds_figure, "lines+markers")
    assert rounds == [*range(8)]
    marked = explored.find(".rdx-rounds-kept").bounding_box()
    assert marked is not None
    ends = [at(explored.rounds_figure, x)[0] for x in (2.5, 3.5)]
    assert [marked["x"], marked["x"] + marked["width"]] == pytest.approx(ends, abs=1)
    explored.click(explored.rounds_figure, 5)
    explored.knows("filter", {"round": {"from": 5, "to": 5}})
    explored.press("Escape")
    explored.knows("filter", {})
    expect(explored.find(".rdx-rounds-kept")).to_be_hidden()


def test_quick_clicks_on_two_rounds_are_no_double_click(explored: Explored) -> None:
    first, second = (at(explored.rounds_figure, round_) for round_ in (3, 5))
    explored.page.mouse.click(*first)
    explored.page.mouse.click(*second)
    explored.knows("filter", {"round": {"from": 5, "to": 5}})


def test_a_zoom_keeps_the_rounds_that_are_seen(explored: Explored) -> None:
    explored.drag(explored.rounds_figure, (1.6, 0.3), (4.4, 0.3))
    explored.knows("filter", {"round": {"from": 2, "to": 4}})
    expect(explored.find(".rdx-filter-chips")).to_contain_text("round: 2 to 4")
    explored.lab.screenshot("explorer_rounds")


def test_a_double_click_takes_all_rounds_back(explored: Explored) -> None:
    explored.set("{'filter': {'round': {'from': 2, 'to': 4}}}")
    explored.page.mouse.dblclick(*at(explored.rounds_figure, 3))
    explored.knows("filter", {})


def test_it_has_tabs_where_it_is_narrow(explored: Explored) -> None:
    left, right = explored.find(".rdx-overview"), explored.find(".rdx-sample")
    boxes = left.bounding_box(), right.bounding_box()
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["y"] == boxes[1]["y"]
    explored.lab.set_width(780)
    expect(left).to_be_visible()
    expect(right).to_be_hidden()
    explored.node.get_by_role("tab", name="Sample", exact=True).click()
    expect(right).to_be_visible()
    expect(left).to_be_hidden()
    explored.node.get_by_role("tab", name="Overview", exact=True).click()
    expect(left).to_be_visible()
    explored.lab.set_width(1280)
    expect(right).to_be_visible()

"""The figures of the explorer's overview, made to fit their panes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.widgets.figures import overview_figures
from rounddiag.widgets.session import Session


@pytest.fixture(scope="module")
def window() -> rd.Batch:
    return rd.load("sample_data/image_window.parquet")


def rounds_of(batch: rd.Batch, **state: Any) -> dict[str, Any]:
    """Return the layout of the upper figure."""
    found = overview_figures(Session(batch, state), "light")["rounds"]
    layout: dict[str, Any] = json.loads(found)["layout"]
    return layout


def label_of(layout: dict[str, Any]) -> str:
    """Return what stands above the first plot."""
    labels = (one for one in layout["annotations"] if one["yref"] == "y domain")
    label: str = next(labels)["text"]
    return label


def test_a_long_key_names_every_value_and_makes_the_pane_higher(
    window: rd.Batch,
) -> None:
    one = rounds_of(window)
    assert label_of(one) == "mean |old − rollout| [nat]"
    assert (one["meta"]["panels"], one["margin"]["t"]) == (1, 18)
    by_group = rounds_of(window, by="group_id")
    values = ("others", *(f"task-{number:02}" for number in (1, 2, 4, 7, 8, 13, 14)))
    assert [value for value in values if value not in label_of(by_group)] == []
    assert label_of(by_group).count("<br>") == 2
    assert (by_group["meta"]["panels"], by_group["margin"]["t"]) == (1.5, 48)
    label = "mean |old − rollout| log-prob [nat]"
    assert by_group["meta"]["notes"][0] == f"y: {label}"


def test_a_key_is_whole_whatever_its_values_and_the_notes_above_it(
    window: rd.Batch,
) -> None:
    column = np.array(["a: 1", "b: 2"])[np.arange(64) % 2]
    named = replace(window, sample_columns={"kind": column})
    label = label_of(rounds_of(named, by="kind"))
    assert "a: 1" in label
    assert "b: 2" in label


def test_the_colour_bar_is_in_sight_above_many_rows(window: rd.Batch) -> None:
    found = overview_figures(Session(window, {}), "light")["heatmap"]
    figure = json.loads(found)
    bar = figure["data"][-1]["marker"]["colorbar"]
    assert (bar["y"], bar["yanchor"], bar["yref"]) == (1, "top", "container")


def test_figures_of_texts_count_words() -> None:
    turns = [[("user", "go"), ("assistant", "a b"), ("user", "on"), ("assistant", "c")]]
    batch = rd.Batch.from_turns(turns * 3, sample_ids=["a", "b", "c"])
    made = overview_figures(Session(batch, {"metric": "round_length"}), "light")
    texts = [figure.decode() for figure in made.values()]
    texts += [
        plot(batch, metric="round_length").to_json()
        for plot in (rd.plot_rounds, rd.plot_heatmap)
    ]
    assert all("[word]" in text and "token" not in text for text in texts)


def test_lines_of_groups_have_the_axis_of_their_bars(window: rd.Batch) -> None:
    layout = rounds_of(window, by="role")
    assert layout["yaxis"]["type"] == "log"
    assert 2 <= len(layout["yaxis"]["tickvals"]) <= 5
    for state in ({"by": "role", "metric": "diff"}, {}):
        plain = rounds_of(window, **state)
        assert plain["yaxis"].get("type") != "log"


def test_the_onset_is_marked_where_all_of_a_batch_is_drawn(window: rd.Batch) -> None:
    def notes(**state: Any) -> str:
        return str(rounds_of(window, **state)["meta"]["notes"])

    assert (
        "onset" not in notes()
    )  # nobody has asked for the diagnosis, which takes long
    rd.diagnose(window)
    assert "onset: round 2" in notes()
    assert "onset: round 2" in notes(metric="diff")
    assert "onset" not in notes(filter={"reward": [1.0]})

"""What happened in each round of a folder without log-probs, by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.core.picture_changes import changed_shares
from rounddiag.vision import RawScreenshot, StoredScreenshot, parse_action
from rounddiag.widgets.actions import action_rows
from rounddiag.widgets.figures import overview_figures
from rounddiag.widgets.images import changes_of, describe_actions, full_screenshot
from rounddiag.widgets.lists import drawer_list
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.session import Session
from rounddiag.widgets.trajectory_columns import reward_bars, scores_by


@pytest.fixture(scope="module")
def osworld() -> rd.Batch:
    return rd.load("sample_data/osworld")


def column(found: dict[str, Any], head: str) -> list[Any]:
    (values,) = (part["values"] for part in found["columns"] if part["head"] == head)
    return [*values]


def test_rounds_have_a_kind_and_marks(osworld: rd.Batch) -> None:
    rows = action_rows(osworld)
    first = rows[rows["sample"] == 0]  # three clicks at one place, nothing happens
    assert first["kind"].str[0].str.cat() == "cccwsf"
    assert first["is_repeated"].tolist() == [False, True, True, False, False, False]
    # The screen after the end is the same, which says nothing.
    assert first["is_unchanged"].tolist() == [True, True, True, True, False, False]
    assert first["seconds"].tolist()[1:] == [20.0] * 5


def test_an_observation_or_a_column_says_the_error() -> None:
    turns = [("user", "go"), ("assistant", "click(1, 2)"), ("tool", "so\nError: no")]
    batch = rd.Batch.from_turns(
        [[*turns, ("assistant", "click(1, 3)")]],
        round_columns={
            "sample": np.zeros(2, int),
            "round": np.arange(2),
            "error": np.array(["", "lost"]),
            "status": np.array(["error", "error"]),
        },
    )
    rows = action_rows(batch)
    assert rows["error"].tolist() == ["error", "lost"]  # an empty text says nothing
    columns = {k: v for k, v in batch.round_columns.items() if k != "status"}
    rows = action_rows(replace(batch, round_columns=columns))
    assert rows["error"].tolist() == ["Error: no", "lost"]
    assert not rows["is_repeated"].any()


def test_long_actions_that_differ_at_their_end_are_no_repeats() -> None:
    turns = [("user", "go"), ("assistant", "a"), ("tool", "so"), ("assistant", "b")]
    columns = {"sample": np.zeros(2, int), "round": np.arange(2)}
    long = "fill " + "a" * 5_000
    for last, is_repeated in (("1", True), ("2", False)):
        action = np.array([f"{long}1", f"{long}{last}"])
        batch = rd.Batch.from_turns(
            [turns], round_columns={**columns, "action": action}
        )
        assert action_rows(batch)["is_repeated"].tolist() == [False, is_repeated]


def test_a_round_without_a_picture_of_its_own_is_not_called_unchanged() -> None:
    shots = [
        RawScreenshot(mode="L", width=1, height=1, data=lambda: b"x", round=number)
        for number in (0, 2, 3)
    ]
    turns = [("user", "go"), ("assistant", "click(1, 2)")]
    batch = rd.Batch.from_turns([turns * 4], images=[tuple(shots)])
    assert action_rows(batch)["is_unchanged"].tolist() == [False, False, True, False]


def test_the_list_and_the_heatmap_have_one_order(osworld: rd.Batch) -> None:
    session = Session(osworld, {})
    found = drawer_list(session, "samples")
    heatmap = json.loads(overview_figures(session, "light")["heatmap"])
    order = heatmap["layout"]["meta"]["samples"]
    assert column(found, "sample") == order == [1, 2, 5, 6, 3, 0, 7, 4]
    assert column(found, "errors") == [*["0"] * 7, "1"]
    assert column(found, "repeats") == ["0", "0", "0", "0", "0", "2", "2", "0"]
    assert column(found, "seconds")[5] == "100"
    assert column(found, "domain")[:3] == ["chrome", "chrome", "libreoffice_calc"]
    outcomes = [" ".join(row).strip() for row in heatmap["data"][-1]["text"]]
    assert outcomes == ["• 1"] * 4 + ["• 0.5", "∅ 0", "• 0", "!"]
    by = {row["name"]: row for row in found["scores"]}
    assert (by["chrome"]["mean"], by["chrome"]["num"]) == (2 / 3, 3)


def test_scores_have_wilsons_interval() -> None:
    # 2 of 3: (p + z2/2n -+ z sqrt(pq/n + z2/4n2)) / (1 + z2/n)
    whole, chrome = scores_by(np.array([1.0, 1.0, 0.0, np.nan]), ["chrome"] * 4)
    assert whole["num"] == chrome["num"] == 3
    assert chrome["low"] == pytest.approx(0.20766, abs=1e-5)
    assert chrome["high"] == pytest.approx(0.93851, abs=1e-5)
    assert scores_by(np.array([2.0, 0.0]), ["a", "a"]) == []  # no shares of a success


def test_bars_are_of_finite_rewards() -> None:
    bars = reward_bars(np.array([0.0, 1.0, np.inf, np.nan, -np.inf, 0.5]))
    assert "".join(bars) == "▁█···▄"


def test_the_share_that_changed_is_of_cells_and_decodes_a_picture_once() -> None:
    # 120 x 3 cells of 1440 / 120 = 12 pixels; the last ones are 6 high.
    pictures = [np.zeros((30, 1440), np.uint8) for _ in range(4)]
    pictures[1][11, 11] = 1  # one cell
    pictures[2][[11, 12], [11, 1439]] = 1  # another one, at the right edge
    decoded: list[int] = []

    def read(number: int) -> bytes:
        decoded.append(number)
        return pictures[number].tobytes()

    shots = tuple(
        RawScreenshot(
            mode="L", width=1440, height=30, data=partial(read, number), round=number
        )
        for number in range(4)
    )
    turns = [("user", "go"), ("assistant", "click(1, 2)")]
    batch = rd.Batch.from_turns([turns * 4], images=[shots])
    wanted = [np.nan, 2 / 360, 1 / 360, 1 / 360]
    assert changed_shares(batch, [3, 2, 0, 1]) == pytest.approx(wanted, nan_ok=True)
    assert decoded == [0, 1, 2, 3]
    changed_shares(batch, [1])
    assert decoded == [0, 1, 2, 3]


def test_the_page_has_the_cells_that_the_share_is_of() -> None:
    osworld = rd.load("sample_data/osworld")
    owner = osworld.columns.owner
    for sample in (1, 7):
        shares = changed_shares(osworld, np.flatnonzero(owner == sample).tolist())
        images = osworld.images[sample] if osworld.images else ()
        found = changes_of(osworld, sample, range(len(images)))
        assert found[0] == {}  # nothing led to it
        cells = [found[index]["changes"] for index in range(1, len(images))]
        assert all(cell["columns"] == 120 for cell in cells)
        own = [np.count_nonzero(cell["sizes"]) / cell["sizes"].size for cell in cells]
        assert own == pytest.approx(shares[: len(own)])
        full = full_screenshot(osworld, sample, 1)["changes"]
        assert full["sizes"].tolist() == cells[0]["sizes"].tolist()
        first, second = (
            np.asarray(image.image().convert("RGB")) for image in images[:2]
        )
        differs = (first != second).reshape(75, 8, 120, 8, 3).any(axis=(1, 3, 4))
        assert own[0] == differs.mean()
    rounds = drawer_list(Session(osworld, {}), "rounds")
    assert column(rounds, "changed")[:4] == ["6.3 %", "6.3 %", "3.2 %", "0 %"]


def test_the_colour_under_transparent_pixels_is_no_change() -> None:
    shots = tuple(
        RawScreenshot(
            mode="RGBA",
            width=8,
            height=8,
            data=partial(bytes, [color, 0, 0, 0] * 64),
            round=number,
        )
        for number, color in enumerate((10, 200))
    )
    turns = [("user", "go"), ("assistant", "click(1, 2)")] * 2
    batch = rd.Batch.from_turns([turns], images=[shots])
    assert changed_shares(batch, [0]).tolist() == [0]


def test_a_page_reads_pictures_before_it_shows_how_they_changed() -> None:
    osworld = rd.load("sample_data/osworld")
    requests = RequestHandler(Session(osworld, {}), lambda: None)
    args = {"changes": {"metric": "round_change"}, "theme": "light"}
    assert requests("set", args) == {"num_unread": osworld.num_rounds}
    reply = requests("overview", {"theme": "light"})
    assert isinstance(reply, dict)
    assert "figures" in reply
    work = requests("pictures", {})
    assert callable(work)
    work()
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(StoredScreenshot, "image")
        reply = requests("set", args)
    assert isinstance(reply, dict)
    assert reply["state"]["metric"] == "round_change"


def test_the_change_of_the_picture_is_read_when_it_is_chosen() -> None:
    osworld = rd.load("sample_data/osworld")
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(StoredScreenshot, "image")
        session = Session(osworld, {})
        overview_figures(session, "light")
    offered = [name for name, *_ in session.options["metric"]]
    assert {"round_length", "round_seconds", "round_change"} <= {*offered}
    session.change({"metric": "round_change", "filter": {"sample": [1]}})
    rounds = session.filtered_batch.rounds
    at = np.flatnonzero(osworld.columns.owner == 1).tolist()
    assert rounds["round_change"].tolist() == changed_shares(osworld, at).tolist()
    assert (rounds["round_change"] > 0).tolist() == [True, True, True, False]


@pytest.mark.parametrize(
    ("call", "label"),
    [
        ("computer(action='screenshot')", "screenshot"),
        ("computer(action='zoom', region=[1, 2, 3, 4])", "zoom [1, 2, 3, 4]"),
        ("computer(action='left_click', coordinate=[1, 2])", "click (1, 2)"),
        ("computer(action='type', text='type')", 'type "type"'),
        ("WAIT", "wait"),
        ("bash(command='ls')", "bash(command='ls')"),
    ],
)
def test_calls_of_a_computer_are_worded(call: str, label: str) -> None:
    (action,) = describe_actions([call], [None], [call])
    assert action["label"] == label
    assert (parse_action(call).kind == "unknown") == (label[0] in "szb")


def test_a_batch_with_log_probs_has_no_actions_to_show() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    with pytest.raises(rd.errors.FrameError, match="metric"):
        Session(batch, {"metric": "action"})

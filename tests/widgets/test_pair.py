"""Two batches in one explorer."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag import Batch, explore, load
from rounddiag.errors import BatchError, FrameError
from rounddiag.widgets.explorer import Explorer
from rounddiag.widgets.pair import BatchPair
from rounddiag.widgets.requests import RequestHandler
from rounddiag.widgets.session import Session
from tests.batches import hand_batch, padded
from tests.figures.plots import words

HEALTHY, STALE = "sample_data/healthy.parquet", "sample_data/stale.parquet"
# The hand batch has samples of 2, 2 and 1 rounds.
IDS = ("x", "y", "z")


def named(**others: Any) -> Batch:
    return hand_batch(sample_ids=IDS, **others)


def turned() -> Batch:
    """The samples of `named` in another order, and one of its own in place of x."""
    return replace(named()[[2, 1, 0]], sample_ids=("z", "y", "v"))


def asked(explorer: Explorer, name: str, **args: Any) -> Any:
    reply = explorer._requests(name, args)
    return reply() if callable(reply) else reply  # what is slow is called later


def worst(explorer: Explorer, name: str) -> list[dict[str, Any]]:
    """What a list leads to, and its last column: a lower bound."""
    found = asked(explorer, "list", list=name)
    low = found["columns"][-1]["values"] if found["num_rows"] else []
    pairs = zip(found["places"], low, strict=True)
    return [{**place, "low": one} for place, one in pairs]


def cells_of(explorer: Explorer) -> Any:
    return explorer.figure("heatmap").data[0]


def test_it_opens_at_what_the_second_batch_has_most_more_of() -> None:
    explorer = explore([HEALTHY, STALE])
    assert [*explorer.batches] == ["healthy.parquet", "stale.parquet"]
    assert (explorer.state["batch"], explorer.state["heatmap"]) == (1, "difference")
    assert explorer.batch is explorer.batches["stale.parquet"]
    first = worst(explorer, "rounds")[0]
    at = explorer.current
    assert (at["sample"], at["round"]) == (first["sample"], first["round"])
    assert first["low"] > 0


def test_batches_are_called_as_they_are_given() -> None:
    one, other = named(), turned()
    assert [*explore({"before": one, "after": other}).batches] == ["before", "after"]
    assert [*explore((one, other)).batches] == ["batch 0", "batch 1"]


@pytest.mark.parametrize(
    ("given", "num"), [([], 0), ([HEALTHY], 1), ({1: 2, 3: 4, 5: 6}, 3)]
)
def test_it_takes_one_batch_or_two(given: Any, num: int) -> None:
    message = (
        "`batch`: expected one batch or path, or two of them in a list or a dictionary;"
        f" found {num} of them. Compare two of them at a time."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        explore(given)


def test_one_batch_is_not_compared() -> None:
    explorer = explore(named())
    assert asked(explorer, "overview", theme="light")["pair"] is None
    for key, known, value in (("batch", [0], 1), ("heatmap", ["batch"], "difference")):
        message = (
            f"`{key}`: expected one of {known}; found {value!r}."
            " Leave it out, or choose a value that the batch has."
        )
        with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
            explorer.state = {key: value}
    assert explorer.state["batch"] == 0


@pytest.mark.parametrize("wrong", [2, -1, True, 1.0, "1", None])
def test_there_is_no_third_batch(wrong: Any) -> None:
    explorer = explore([named(), turned()])
    message = (
        f"`batch`: expected 0, or 1 for the second of two; found {wrong!r}."
        " Leave it out for the default."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        explorer.state = {"batch": wrong}
    assert explorer.state["batch"] == 1


def test_in_the_other_batch_the_same_token_is_looked_at() -> None:
    explorer = explore([named(), turned()], batch=0)
    explorer.current = {"sample": 2}
    explorer.state = {"batch": 1}
    assert explorer.current == {"sample": 0, "round": 0, "token": 0}
    explorer.current = {"sample": 1, "round": 1, "token": 0}
    explorer.state = {"batch": 0}
    assert explorer.current == {"sample": 1, "round": 1, "token": 0}


def test_a_shorter_partner_is_looked_at_where_it_ends() -> None:
    longer = padded([[1, 1, 0, 1]], [[0.0] * 4], [[0.0] * 4], sample_ids=["x"])
    shorter = padded([[1, 0, 0, 0]], [[0.0] * 4], [[0.0] * 4], sample_ids=["x"])
    explorer = explore([longer, shorter], batch=0)
    for place in ({"round": 0, "token": 1}, {"round": 1}):
        explorer.state = {"batch": 0}
        explorer.current = {"sample": 0, **place}
        explorer.state = {"batch": 1}
        assert explorer.current == {"sample": 0, "round": 0, "token": 0}


def test_a_sample_without_a_partner_leads_to_what_differs_most() -> None:
    explorer = explore([named(), turned()], batch=0)
    explorer.current = {"sample": 0}
    explorer.state = {"batch": 1}
    # z and y are the same in both: nothing differs, so the worst cell of the batch.
    assert explorer.current == {"sample": 1, "round": 1, "token": 0}


def test_cells_and_filter_follow_their_samples() -> None:
    explorer = explore([named(), turned()], batch=0)
    explorer.state = {
        "cells": {"samples": [0, 1, 2], "rounds": [0, 1]},
        "filter": {"sample": [2, 0]},
    }
    explorer.state = {"batch": 1}
    assert explorer.state["cells"] == {"samples": [1, 0], "rounds": [0, 1]}
    assert explorer.state["filter"]["sample"] == [0]
    explorer.state = {"cells": {"samples": [2], "rounds": [0, 0]}}
    explorer.state = {"batch": 0}
    assert explorer.state["cells"] is None


def test_a_filter_that_does_not_fit_the_other_batch_is_taken_off() -> None:
    other = replace(turned(), group_ids=("g", "g", "g"))
    explorer = explore([named(group_ids=("f", "f", "h")), other], batch=0)
    explorer.state = {"filter": {"group_id": "h"}}
    explorer.state = {"batch": 1}
    assert explorer.state["filter"] == {}
    with pytest.raises(
        FrameError, match=r"^`group_id`: expected values out of 'f', 'h'"
    ):
        explorer.state = {"batch": 0, "filter": {"group_id": "g"}}
    assert explorer.state["batch"] == 1


def test_both_have_one_range_of_colours_and_one_order() -> None:
    explorer = explore([HEALTHY, STALE], heatmap="batch", order="worst")
    ends, rows = [], []
    for batch in (0, 1):
        explorer.state = {"batch": batch}
        ends.append((cells_of(explorer).zmin, cells_of(explorer).zmax))
        rows.append(explorer.figure("heatmap").layout.meta["samples"])
    assert ends[0] == ends[1]
    assert rows[0] == rows[1]
    explorer.state = {"heatmap": "difference"}
    assert explorer.figure("heatmap").layout.meta["samples"] == rows[0]


def test_the_difference_is_of_pairs_alone_and_they_stand_first() -> None:
    explorer = explore([named(), turned()], order="sample")
    assert explorer.figure("heatmap").layout.meta["samples"] == [1, 0]
    np.testing.assert_array_equal(cells_of(explorer).z, [[0, 0], [0, np.nan]])
    explorer.state = {"heatmap": "batch"}
    assert explorer.figure("heatmap").layout.meta["samples"] == [1, 0, 2]
    explorer.state = {"batch": 0}
    assert explorer.figure("heatmap").layout.meta["samples"] == [1, 2, 0]


def test_rows_are_called_by_the_numbers_of_the_batch_that_is_looked_at() -> None:
    before, after = named(), turned()
    more = replace(after, old_log_probs=after.log_probs("old") + 4)
    explorer = explore([before, more], order="sample")
    for batch, samples in ((1, [1, 0]), (0, [1, 2])):
        explorer.state = {"batch": batch}
        assert explorer.figure("heatmap").layout.meta["samples"] == samples
        np.testing.assert_array_equal(
            cells_of(explorer).z, np.array([[11 / 3, 4], [2, np.nan]], np.float32)
        )
        assert {row["sample"] for row in worst(explorer, "samples")} == {*samples}


def test_a_batch_does_not_differ_from_itself() -> None:
    explorer = explore([HEALTHY, HEALTHY])
    assert [*explorer.batches] == ["batch 0", "batch 1"]
    assert asked(explorer, "overview", theme="light")["pair"] == {
        "names": ("batch 0", "batch 1"),
        "description": "64 samples of both, paired by sample id",
    }
    z = cells_of(explorer).z
    assert np.nanmax(np.abs(z)) == 0
    assert worst(explorer, "rounds") == worst(explorer, "samples") == []
    assert explorer.current["sample"] >= 0


def test_the_list_is_of_what_the_heatmap_is_of() -> None:
    explorer = explore([HEALTHY, STALE])
    heads = [one["head"] for one in asked(explorer, "list", list="rounds")["columns"]]
    assert "difference [nat]" in heads
    explorer.state = {"heatmap": "batch"}
    heads = [one["head"] for one in asked(explorer, "list", list="rounds")["columns"]]
    assert "mean |diff| [nat]" in heads


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (named(), named(), "3 samples of both, paired by sample id"),
        (
            named(),
            turned(),
            "2 samples of both, paired by sample id; 1 sample of a only;"
            " 1 sample of b only",
        ),
        (hand_batch(), named(), "samples are not paired: no `sample_ids` in a"),
        (
            hand_batch(),
            hand_batch(),
            "samples are not paired: no `sample_ids` in a and b",
        ),
        (
            named(),
            replace(named(), sample_ids=("x", "v", "w")),
            "samples are not paired: less than half share their `sample_ids`",
        ),
    ],
)
def test_words_say_which_samples_are_compared(
    before: Batch, after: Batch, words: str
) -> None:
    assert BatchPair({"a": before, "b": after}).description == words


def test_without_pairs_a_sentence_stands_where_the_difference_would() -> None:
    explorer = explore({"a": hand_batch(), "b": named()})
    assert explorer.state["heatmap"] == "batch"
    explorer.state = {"heatmap": "difference"}
    figure = explorer.figure("heatmap")
    assert len(figure.data) == 0
    assert "samples are not paired: no `sample_ids` in a" in words(figure)
    assert worst(explorer, "rounds") == worst(explorer, "samples") == []
    explorer.state = {"batch": 0}
    assert explorer.batch is explorer.batches["a"]


def test_a_sample_says_which_one_it_is_in_the_other_batch() -> None:
    explorer = explore({"a": named(), "b": turned()})
    for batch, sample, partner in (
        (0, 2, "sample 0 in b"),
        (1, 0, "sample 2 in a"),
        (1, 2, "not in a"),
    ):
        found = asked(explorer, "trajectory", sample=sample, batch=batch)
        assert (found["of"], found["partner"]) == ("ab"[batch], partner)
        assert found["batch"] == batch
    apart = explore({"a": hand_batch(), "b": named()})
    assert "partner" not in asked(apart, "trajectory", sample=0, batch=0)


def test_a_sample_is_of_the_batch_that_was_asked_for_whatever_is_looked_at() -> None:
    after = replace(named(), old_log_probs=named().log_probs("old") + 1)
    explorer = explore([named(), after])
    for batch, diff in ((0, 0.5), (1, 1.5), (0, 0.5)):
        found = asked(explorer, "trajectory", sample=0, batch=batch)
        assert found["tokens"]["diff"][0] == diff


def test_batches_of_different_lengths_are_compared_where_both_are() -> None:
    longer = padded([[1, 0, 1]], [[-1.0, 0, -1]], [[-2.0, 0, -4]], sample_ids=["x"])
    shorter = padded([[1, 0, 0]], [[-1.0, 0, 0]], [[-1.0, 0, 0]], sample_ids=["x"])
    for pair, difference in (([longer, shorter], -1), ([shorter, longer], 1)):
        explorer = explore(pair)
        np.testing.assert_array_equal(cells_of(explorer).z, [[difference]])
        assert len(explorer.figure("rounds").data) > 0


def test_what_can_be_chosen_is_what_both_have() -> None:
    shape = named().log_probs("old").shape
    scores = {name: torch.zeros(shape) for name in ("ref", "current")}
    before = replace(named(), scores=scores, rewards=torch.zeros(3))
    after = replace(named(), scores={"ref": torch.zeros(shape)})
    explorer = explore([before, after])
    options = asked(explorer, "overview", theme="light")["options"]
    assert options["scores"] == ["old", "rollout", "ref"]
    assert options["order"] == ["sample", "worst", "rounds"]
    assert (options["by"], options["axis"]) == ([], ["round"])
    explorer.state = {"a": "ref"}
    assert asked(explorer, "overview", theme="light")["state"]["a"] == "ref"
    with pytest.raises(BatchError, match="current"):
        explorer.state = {"a": "current"}
    assert explorer.state["a"] == "ref"


@pytest.mark.parametrize(
    ("key", "value", "known"),
    [("by", "reward", [None]), ("axis", "context", ["round"])],
)
def test_what_two_batches_cannot_be_divided_by_is_refused(
    key: str, value: Any, known: Any
) -> None:
    message = (
        f"`{key}`: expected one of {known}; found {value!r}."
        " Leave it out, or choose a value that the batch has."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        explore([named(), named()], **{key: value})


def test_a_filter_counts_in_both_and_pairs_stay_pairs() -> None:
    explorer = explore([HEALTHY, STALE], filter={"round": [1, 2]})
    title = words(explorer.figure("rounds"))
    assert "stale.parquet: paired, 64 samples" in title  # of all rounds
    assert cells_of(explorer).z.shape[1] == 3
    explorer.state = {"filter": {"sample": 3}}
    assert "paired, 1 sample" in words(explorer.figure("rounds"))


def test_a_filter_that_one_batch_cannot_meet_keeps_nothing_of_it() -> None:
    other = replace(named(), group_ids=("g", "g", "g"))
    explorer = explore([other, named(group_ids=("f", "f", "h"))])
    explorer.state = {"filter": {"group_id": "h"}}
    assert asked(explorer, "overview", theme="light")["counts"]["num_tokens"] == 1
    assert "no round of a sample in both" in words(explorer.figure("heatmap"))
    explorer.state = {"heatmap": "batch"}
    assert np.nanmax(cells_of(explorer).z) == 1


@pytest.mark.slow
def test_every_choice_can_be_drawn() -> None:
    session = Session({"a": load(HEALTHY), "b": load(STALE)}, {})
    answers = RequestHandler(session, lambda: None)
    heatmaps, filters = ("batch", "difference"), (None, [1, 2])
    for number, metric in enumerate(("abs_diff", "diff", "prob_diff", "k3")):
        for heatmap, rounds in zip(heatmaps, filters[:: (-1) ** number], strict=True):
            changes = {
                "metric": metric,
                "heatmap": heatmap,
                "filter": {"round": rounds},
                "layers": {"heatmap": False, "survivors": True},
            }
            answer: Any = answers("set", {"changes": changes, "theme": "dark"})
            assert json.loads(answer["figures"]["heatmap"])["data"]


def test_state_and_code_bring_it_back() -> None:
    explorer = explore([HEALTHY, STALE], metric="k3")
    explorer.state = {"batch": 0, "heatmap": "batch", "current": {"sample": 3}}
    again = explore([HEALTHY, STALE], **explorer.state)
    assert again.state == explorer.state
    code = explorer.to_code()
    assert code.startswith(
        "import rounddiag as rd\n\nbatches = {'healthy.parquet':"
        " rd.load('sample_data/healthy.parquet'), 'stale.parquet':"
        " rd.load('sample_data/stale.parquet')}\nrd.explore(batches, metric='k3', "
    )
    lines, last = code.rsplit("\n", 1)
    scope: dict[str, Any] = {}
    exec(lines, scope)  # noqa: S102 our own
    found: Explorer = eval(last, scope)  # noqa: S307 our own
    assert found.state == explorer.state
    assert (
        explore([named(), turned()])
        .to_code()
        .startswith("import rounddiag as rd\n\nrd.explore(batches, current=")
    )

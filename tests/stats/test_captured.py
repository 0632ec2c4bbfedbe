"""Batches of which a file holds a part; `tests/capture` writes such files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rounddiag import round_summary, schema
from tests.batches import hand_batch

# What round 0 of ten samples came to, of which three are in the batch.
ROUND = {
    "round": 0,
    "num_samples": 10,
    "num_tokens": 20,
    "num_nonfinite": 0,
    "mean_abs_diff": 0.5,
    "mean_diff": -0.25,
    "k3": 0.125,
    "prob_diff": 0.1,
    "p50": 0.25,
    "p95": 1.0,
    "p99": 1.5,
    "max": 2.0,
    "cluster_abs_diff": [1.0] * 10,
    "cluster_tokens": [2] * 10,
}


def part(**facts: Any) -> Any:
    why = np.array(["random", "worst", "random"], dtype=object)
    capture = {"num_samples": 10, "num_saved": 3, "rounds": [ROUND], **facts}
    return replace(
        hand_batch(), sample_columns={"picked": why}, meta={"capture": capture}
    )


def test_the_rows_of_the_whole_batch_are_the_summary() -> None:
    found = round_summary(part())
    assert [*found] == [column.name for column in schema.SUMMARY.columns]
    row = found.iloc[0].to_dict()
    named = {name: ROUND[name] for name in row if name in ROUND}
    assert {name: row[name] for name in named} == named
    # All clusters have one mean, so the interval is that mean.
    assert (row["ci_low"], row["ci_high"]) == (pytest.approx(0.5), pytest.approx(0.5))


def test_a_selection_leaves_the_worst_out() -> None:
    found = round_summary(part().where([True, True, False]))
    assert found["num_samples"].tolist() == [1, 1]
    assert found["num_tokens"].tolist() == [2, 1]
    assert found["mean_abs_diff"].tolist() == [0.375, 1.0]


def test_of_the_worst_alone_nothing_is_left_out() -> None:
    found = round_summary(part().where([False, True, False]))
    assert found["num_samples"].tolist() == [1, 1]
    assert found["num_tokens"].tolist() == [3, 1]


@pytest.mark.parametrize("rounds", [None, 3, [3], [{}], [{**ROUND, "round": "x"}]])
def test_statistics_that_are_broken_are_not_used(rounds: object) -> None:
    found = round_summary(part(rounds=rounds))
    assert found["num_samples"].tolist() == [2, 1]


@pytest.mark.parametrize("capture", [None, "x", {}, {"num_samples": 3}])
def test_a_whole_batch_is_summarised_as_it_is(capture: object) -> None:
    whole = replace(part(), meta={"capture": capture})
    assert round_summary(whole).equals(round_summary(hand_batch()))

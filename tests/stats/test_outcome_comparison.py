"""Two sets of attempts, compared by task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.errors import BatchError
from tests.batches import padded

NAN = float("nan")


def attempts(
    rewards: Sequence[float], tasks: Sequence[Any], column: str = "group"
) -> rd.Batch:
    batch = padded(*[[[value]] * len(rewards) for value in (1, -1.0, -1.0)])
    batch = replace(batch, rewards=torch.tensor(rewards, dtype=torch.float64))
    if column == "group":
        return replace(batch, group_ids=tuple(tasks))
    return replace(batch, sample_columns={column: np.array(tasks, dtype=object)})


def test_scores_are_means_over_attempts() -> None:
    before = attempts([0, 1, 1, NAN, 0.5], ["x", "x", "y", "z", "w"])
    after = attempts([1, 0, 1, 1], ["y", "x", "z", "v"])
    rows = rd.compare_outcomes(before, after).set_index("task")
    assert [*rows.index] == ["x", "y", "z", "w", "v"]
    assert rows["change"].to_dict() == {
        "x": "lost",
        "y": "equal",
        "z": "unknown",
        "w": "not in both",
        "v": "not in both",
    }
    assert [*rows.loc["x", ["score_a", "score_b"]]] == [0.5, 0]
    assert rows["num_attempts_a"].tolist() == [2, 1, 0, 1, 0]
    assert rows["num_attempts_b"].tolist() == [1, 1, 1, 0, 1]
    assert rows.attrs["num_tasks"] == 2
    assert rows.attrs["mean_difference"] == -0.25
    assert math.isnan(rows.attrs["ci_low"])  # 2 tasks
    assert rows.attrs["mcnemar_p"] is None  # x has two attempts


# McNemar, by hand: 2 * P(at most 1 of 8 heads) = 2 * (1 + 8) / 256.
@pytest.mark.parametrize(
    ("gained", "lost", "p"), [(7, 1, 18 / 256), (1, 7, 18 / 256), (0, 0, 1), (1, 0, 1)]
)
def test_mcnemar_by_hand(gained: int, lost: int, p: float) -> None:
    tasks = [str(task) for task in range(gained + lost + 2)]
    before = attempts([0] * gained + [1] * lost + [1, 0], tasks)
    after = attempts([1] * gained + [0] * lost + [1, 0], tasks)
    compared = rd.compare_outcomes(before, after)
    assert compared.attrs["mcnemar_p"] == pytest.approx(p)
    assert (compared["change"] == "gained").sum() == gained


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=5, max_size=30))
def test_the_sides_can_be_swapped(scores: list[tuple[float, float]]) -> None:
    tasks = [str(task) for task in range(len(scores))]
    sides = [attempts(list(side), tasks) for side in zip(*scores, strict=True)]
    there, back = rd.compare_outcomes(*sides), rd.compare_outcomes(*sides[::-1])
    assert there.attrs["mean_difference"] == -back.attrs["mean_difference"]
    ends = [there.attrs["ci_low"], there.attrs["ci_high"]]
    assert ends == pytest.approx([-back.attrs["ci_high"], -back.attrs["ci_low"]])
    assert ends[0] <= there.attrs["mean_difference"] <= ends[1]


# By hand, with n + 2 tasks: 5 of 5 gained are 5/7 +- 1.96 sqrt(5 + 1 - 25/7) / 7; no
# change of 5 is +- 1.96 / 7; 9 of 10 gained are 9/12 +- 1.96 sqrt(9 + 1 - 81/12) / 12.
@pytest.mark.parametrize(
    ("gained", "equal", "interval"),
    [(5, 0, (0.2780, 1)), (0, 5, (-0.2800, 0.2800)), (9, 1, (0.4555, 1))],
)
def test_the_interval_has_a_width_and_stays_within_scores(
    gained: int, equal: int, interval: tuple[float, float]
) -> None:
    tasks = [str(task) for task in range(gained + equal)]
    sides = [attempts([0.0] * len(tasks), tasks)]
    sides.append(attempts([1.0] * gained + [0.0] * equal, tasks))
    found = rd.compare_outcomes(*sides).attrs
    assert (found["ci_low"], found["ci_high"]) == pytest.approx(interval, abs=1e-4)


def test_scores_that_are_no_share_and_differ_alike_have_no_interval() -> None:
    tasks = [*"abcde"]
    found = rd.compare_outcomes(attempts([2] * 5, tasks), attempts([3] * 5, tasks))
    assert math.isnan(found.attrs["ci_low"])


def test_attempts_without_a_task_are_counted_and_left_out() -> None:
    before = attempts([0, 1, 1], [1, 2, None], "task")
    after = attempts([1, 0], [1.0, NAN], "task")
    found = rd.compare_outcomes(before, after)
    assert found["task"].tolist() == ["1", "2"]
    assert found.attrs["num_unnamed"] == 2
    assert found.attrs["mean_difference"] == 1


def test_the_order_of_attempts_changes_nothing() -> None:
    rewards = [0.1, 0.2, 0.3, 0.7]
    sides = [attempts(each, ["x"] * 4) for each in (rewards, rewards[::-1])]
    assert rd.compare_outcomes(*sides)["change"].tolist() == ["equal"]


def test_a_column_of_tasks_comes_before_the_groups() -> None:
    before = attempts([0, 1], ["x", "y"], "task_id")
    after = replace(attempts([1, 1], ["x", "y"], "task_id"), group_ids=("1", "2"))
    assert rd.compare_outcomes(before, after).attrs["by"] == "task_id"


def test_what_cannot_be_compared_is_an_error() -> None:
    before = attempts([0], ["x"])
    with pytest.raises(BatchError, match="x and group_ids y"):
        rd.compare_outcomes(before, attempts([0], ["y"]))
    with pytest.raises(BatchError, match="rewards"):
        rd.compare_outcomes(before, replace(before, rewards=None))


def test_the_folder_names_the_task_of_a_run() -> None:
    """The groups of OSWorld are made of equal prompts; their ids are hashes."""
    batch = rd.load("sample_data/osworld")
    compared = rd.compare_outcomes(batch, batch)
    assert compared.attrs["by"] == "sample_ids"
    assert compared["task"].tolist() == list(batch.sample_ids or ())

"""Holes of a mask: which single 0s are rejected tokens, and which observations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.checks.rounds import NO_HOLES, find_holes

NAN, INF = float("nan"), float("inf")


def rows(mask: list[list[int]], rollout: list[list[float]], **others: Any) -> Batch:
    return Batch.from_rows(
        response_ids=[torch.arange(len(row)) for row in mask],
        response_mask=[torch.tensor(row) for row in mask],
        rollout_log_probs=[torch.tensor(row) for row in rollout],
        old_log_probs=[torch.zeros(len(row)) for row in mask],
        **others,
    )


def test_a_rejected_token_is_a_hole_and_a_filled_observation_is_none() -> None:
    batch = rows([[1, 0, 1, 0, 1]], [[-1.0, -9.0, -1.0, 0.0, -1.0]])
    assert find_holes(batch).tolist() == [1]


@pytest.mark.parametrize(
    ("old", "said"), [(-3.0, "mean |diff| 6 nat there"), (NAN, "no diff there")]
)
def test_only_finite_differences_of_holes_are_said(old: float, said: str) -> None:
    batch = rows([[1, 0, 1]], [[-1.0, -9.0, -1.0]])
    batch = replace(batch, old_log_probs=torch.full((3,), old))
    fault = NO_HOLES.find(batch)
    assert fault is not None
    assert fault.detail.endswith(f"; {said}")


@pytest.mark.parametrize(
    ("mask", "rollout", "found"),
    [
        ([1, 0, 0, 0, 1], [-1.0, -9.0, -9.0, -9.0, -1.0], [1, 2, 3]),
        ([1, 0, 0, 1, 0, 1], [-1.0, -9.0, -9.0, -1.0, -3.0, -1.0], [1, 2, 4]),
        ([1, 0, 0, 1], [-1.0, -9.0, 0.0, -1.0], []),
        ([1, 0, 0, 0, 0, 1], [-1.0] * 6, []),
    ],
    ids=["three", "two and one", "one of two is filled", "four"],
)
def test_a_hole_has_at_most_three_tokens_that_were_all_sampled(
    mask: list[int], rollout: list[float], found: list[int]
) -> None:
    assert find_holes(rows([mask], [rollout])).tolist() == found


def test_where_the_sampler_scored_observations_there_are_no_holes() -> None:
    mask = [1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert find_holes(rows([mask], [[-1.0] * 13])).tolist() == []
    assert find_holes(rows([mask[:8]], [[-1.0] * 8])).tolist() == [1]


def test_a_hole_has_rounds_of_its_own_sample_on_both_sides() -> None:
    batch = rows([[1, 0], [1, 1, 0, 1]], [[-1.0, -9.0], [-1.0, -1.0, -9.0, -1.0]])
    assert find_holes(batch).tolist() == [4]


@pytest.mark.parametrize("fill", [NAN, INF, -INF, 1.0, 0.0])
def test_a_fill_value_is_no_hole(fill: float) -> None:
    assert find_holes(rows([[1, 0, 1]], [[-1.0, fill, -1.0]])).tolist() == []


def test_what_stands_between_two_known_rounds_is_no_hole() -> None:
    known = [torch.tensor([0, 1, 1, -1, 1])]
    batch = rows([[1, 0, 1, 0, 1]], [[-1.0, -9.0, -1.0, -9.0, -1.0]], round_ids=known)
    assert find_holes(batch).tolist() == [3]


@pytest.mark.parametrize("mask", [[], [[]], [[1]], [[0, 0]]])
def test_where_there_is_no_round_between_there_is_no_hole(mask: list[Any]) -> None:
    assert find_holes(rows(mask, [[-1.0] * len(row) for row in mask])).tolist() == []


def test_holes_are_found_on_every_device(device: torch.device) -> None:
    batch = rows([[1, 0, 1]], [[-1.0, -9.0, -1.0]]).to(device)
    assert find_holes(batch).tolist() == [1]

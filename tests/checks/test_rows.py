"""Copies of rows, rows of padding and empty responses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.checks.rows import COPIES, NOT_EMPTY, WRITTEN
from tests.checks.chats import (
    EMPTY,
    NO_TOKEN,
    PASSED,
    came_to,
    chat,
    prompts,
    scored,
    untestable,
)

RARE = [-9.0, -8.0, -7.0]  # together under -20 nats
OLD = [-9.5, -8.0, -7.0]


def rows(*ids: list[int], **others: Any) -> Any:
    """Return rows that are alike in all but their ids and what is given."""
    fields: dict[str, Any] = {
        "rollout_log_probs": [torch.tensor(RARE)] * len(ids),
        "old_log_probs": [torch.tensor(OLD)] * len(ids),
    }
    return chat(list(ids), [[1, 1, 1]] * len(ids), **{**fields, **others})


def test_copies_are_named_with_their_first() -> None:
    batch = rows([1, 2, 3], [4, 5, 6], [1, 2, 3], [4, 5, 6], [1, 2, 3])
    assert came_to(COPIES, batch) == (
        "failed",
        "3 of 5 samples are copies of another, with its prompt, response and log-probs:"
        " sample 2 is sample 0",
        (2, 3, 4),
    )


def test_another_prompt_is_another_row() -> None:
    batch = rows([1, 2, 3], [1, 2, 3], **prompts([7], [8]))
    assert came_to(COPIES, batch) == PASSED
    same = rows([1, 2, 3], [1, 2, 3], **prompts([7], [7]))
    assert came_to(COPIES, same)[2] == (1,)


def test_another_old_log_prob_is_another_row() -> None:
    old = [torch.tensor(OLD), torch.tensor([*OLD[:2], -7.5])]
    assert came_to(COPIES, rows([1, 2, 3], [1, 2, 3], old_log_probs=old)) == PASSED


def test_a_likely_response_may_come_twice() -> None:
    likely = [torch.tensor([-0.5, -0.25, -0.125])] * 2
    batch = rows([1, 2, 3], [1, 2, 3], rollout_log_probs=likely)
    assert came_to(COPIES, batch) == PASSED


def test_what_is_expected_twice_depends_on_how_often_the_prompt_was_sampled() -> None:
    # A total of -5 nats: 2 rows of a prompt are equal once in 148 times, 4 rows, which
    # are 6 pairs, once in 25 times.
    fields: dict[str, Any] = {"rollout_log_probs": [torch.tensor([-3.0, -1, -1])] * 4}
    ids = [[1, 2, 3], [1, 2, 3], [4, 5, 6], [7, 8, 9]]
    two = rows(*ids, **fields, **prompts([7], [7], [8], [9]))
    four = rows(*ids, **fields, **prompts([7], [7], [7], [7]))
    assert came_to(COPIES, two)[2] == (1,)
    assert came_to(COPIES, four) == PASSED


@pytest.mark.parametrize(
    ("columns", "copies"),
    [
        ({"request_id": ["a", "a", "b"]}, (1,)),
        ({"request_id": ["a", "b", "b"]}, (2,)),
        ({"traj_uid": ["t", "t", "t"], "step_idx": [0, 0, 1]}, (1,)),
        # The trainer's step names no row, and a click can be repeated.
        ({"traj_uid": ["t", "t", "u"], "step": [40, 40, 40]}, ()),
        ({"request_id": ["a", "a", "a"], "seed": [1, 2, 3]}, ()),
    ],
)
def test_a_likely_response_of_one_name_is_a_copy(
    columns: dict[str, list[object]], copies: tuple[int, ...]
) -> None:
    batch = rows(
        *[[1, 2, 3]] * 3,
        rollout_log_probs=[torch.tensor([-0.5, -0.25, -0.125])] * 3,
        sample_columns={k: np.array(v, dtype=object) for k, v in columns.items()},
    )
    assert came_to(COPIES, batch)[2:] == (copies,)


def test_copies_without_numbers_are_copies() -> None:
    nothing = [torch.full((3,), float("nan"))] * 2
    batch = rows([1, 2, 3], [1, 2, 3], rollout_log_probs=nothing)
    assert came_to(COPIES, batch)[2] == (1,)


def test_padding_at_the_end_is_no_difference() -> None:
    def padded(*values: float) -> torch.Tensor:
        return torch.tensor([[*values, 0.0], [*values, 9.0]])

    batch = type(EMPTY).from_padded(
        response_ids=torch.tensor([[1, 2, 3, 0], [1, 2, 3, 9]]),
        response_mask=torch.tensor([[1, 1, 1, 0]] * 2),
        rollout_log_probs=padded(*RARE),
        old_log_probs=padded(*OLD),
        lengths=torch.tensor([3, 3]),
    )
    assert came_to(COPIES, batch)[2] == (1,)


def test_empty_rows_are_no_copies() -> None:
    batch = scored([[-9.0] * 3, [], []], [[-8.0] * 3, [], []])
    assert came_to(COPIES, batch) == PASSED
    assert came_to(COPIES, EMPTY) == NO_TOKEN


def test_rows_in_which_nothing_was_written_are_named() -> None:
    batch = chat([[1, 2], [1], [3]], [[0, 0], [1], [0]])
    assert came_to(WRITTEN, batch) == (
        "failed",
        "2 samples in which the model wrote nothing, as in padding: samples 0, 2",
        (0, 2),
    )
    assert came_to(NOT_EMPTY, batch) == PASSED


def test_empty_responses_are_named() -> None:
    batch = chat([[], [1]], [[], [1]])
    assert came_to(NOT_EMPTY, batch) == (
        "failed",
        "1 sample without a single response token: sample 0",
        (0,),
    )
    assert came_to(WRITTEN, batch) == PASSED


def test_a_batch_of_no_samples_has_no_rows_to_test() -> None:
    assert came_to(WRITTEN, EMPTY) == untestable("the batch has no sample")
    assert came_to(NOT_EMPTY, EMPTY) == untestable("the batch has no sample")


def test_a_likely_response_does_not_come_thirteen_times_of_sixteen() -> None:
    # With a probability of 0.32, 560 sets of 13 rows repeat their first with 1.3e-6.
    score = [torch.tensor([-1.0, -0.1, -0.03])] * 16
    same = [[1, 2, 3]] * 13 + [[4, 5, 6], [4, 6, 5], [5, 4, 6]]
    result = came_to(COPIES, rows(*same, rollout_log_probs=score, old_log_probs=score))
    assert result[2] == tuple(range(1, 13))
    twice = [[1, 2, 3]] * 2 + [[4, 5, last] for last in range(14)]
    batch = rows(*twice, rollout_log_probs=score, old_log_probs=score)
    assert came_to(COPIES, batch) == PASSED

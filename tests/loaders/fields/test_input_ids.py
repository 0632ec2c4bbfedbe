"""`input_ids` of a file beside its prompts and responses: equal, or where not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rounddiag.loaders.field_batch import batch_from_fields


def comparison(input_ids: Any, **others: Any) -> object:
    """What the loader notes of two rows; the first has one token of left padding."""
    fields = {
        "prompts": torch.tensor([[0, 11], [20, 21]]),
        "responses": torch.tensor([[12, 13, 14], [22, 23, 0]]),
        "response_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
        "rollout_log_probs": torch.full((2, 3), -1.0),
        "old_log_probs": torch.full((2, 3), -2.0),
        "input_ids": input_ids,
        **others,
    }
    batch = batch_from_fields(fields, source="memory")
    return batch.meta.get("input_ids")


WHOLE = torch.tensor([[0, 11, 12, 13, 14], [20, 21, 22, 23, 0]])
REAL = torch.tensor([[0, 1, 1, 1, 1], [1, 1, 1, 1, 0]])


def changed(sample: int, at: int) -> torch.Tensor:
    ids = WHOLE.clone()
    ids[sample, at] = 99
    return ids


def test_prompt_and_response_end_to_end_are_equal() -> None:
    assert comparison(WHOLE) == "equal"
    assert comparison(WHOLE, attention_mask=REAL) == "equal"


def test_rows_without_padding_are_compared_one_by_one() -> None:
    rows = [torch.tensor([1, 2, 3]), torch.tensor([4, 5])]
    parts = {
        "prompts": [torch.tensor([1]), torch.tensor([4])],
        "responses": [torch.tensor([2, 3]), torch.tensor([5])],
        "response_mask": [torch.ones(2), torch.ones(1)],
        "rollout_log_probs": [torch.zeros(2), torch.zeros(1)],
        "old_log_probs": [torch.zeros(2), torch.zeros(1)],
    }
    assert comparison(rows, **parts) == "equal"


@pytest.mark.parametrize(
    ("sample", "at", "expected"),
    [
        (1, 3, "sample 1 has 99, not 23, at position 1"),
        (0, 1, "sample 0 has 99, not 11, at position -1"),
    ],
)
def test_another_id_is_reported_with_its_position(
    sample: int, at: int, expected: str
) -> None:
    assert comparison(changed(sample, at)) == expected


def test_padding_may_differ() -> None:
    assert comparison(changed(0, 0), attention_mask=REAL) == "equal"
    assert comparison(changed(0, 0)) == "sample 0 has 99, not 0, at position -2"


def test_another_length_is_reported() -> None:
    assert comparison(WHOLE[:, 1:]) == (
        "sample 0 has 4 of them for 5 tokens, sample 1 has 4 of them for 5 tokens"
    )


def test_another_number_of_rows_is_reported() -> None:
    assert comparison(WHOLE[:1]) == "it has another number of rows"


def test_only_the_first_samples_are_named() -> None:
    fields = {
        name: torch.ones(5, 1)
        for name in ("response_mask", "rollout_log_probs", "old_log_probs")
    }
    ids = torch.ones(5, 1, dtype=torch.int64)
    found = comparison(torch.zeros(5, 2), **fields, prompts=ids, responses=ids)
    assert str(found).endswith(", sample 2 has 0, not 1, at position -1 and 2 more")


@pytest.mark.parametrize("missing", ["input_ids", "prompts"])
def test_without_both_nothing_is_reported(missing: str) -> None:
    assert comparison(**{"input_ids": WHOLE, missing: None}) is None

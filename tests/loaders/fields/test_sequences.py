"""Whole sequences, divided where the model first wrote."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.errors import LoadError
from rounddiag.loaders.field_reader import divide_sequences

NAMES = {"lp": "old_log_probs", "absent": "ref_log_probs"}


def divide(**content: Any) -> dict[str, list[list[Any]]]:
    found = divide_sequences(
        content, Path("f.pt"), tokens="ids", written="mask", names=NAMES
    )
    return {name: [row.tolist() for row in rows] for name, rows in found.items()}


def test_the_prompt_is_what_stands_before_the_first_written_token() -> None:
    found = divide(
        ids=torch.tensor([[1, 2, 5, 7, 6, 0], [0, 1, 5, 6, 0, 0]]),
        attention_mask=torch.tensor([[1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0]]),
        mask=torch.tensor([[0, 0, 1, 0, 1, 0], [0, 0, 1, 1, 0, 0]]),
        lp=torch.tensor([[0.0, 0, -2, -3, -4, 0], [0, 0, -2, -3, 0, 0]]),
    )

    assert found == {
        "prompts": [[1, 2], [1]],
        "responses": [[5, 7, 6], [5, 6]],
        "response_mask": [[1, 0, 1], [1, 1]],
        "old_log_probs": [[-2, -3, -4], [-2, -3]],
    }


def test_a_field_without_the_first_token_is_put_right() -> None:
    found = divide(
        ids=torch.tensor([[1, 2, 5, 6]]),
        mask=torch.tensor([[False, True, True]]),
        lp=torch.tensor([[-1.0, -2.0, -3.0]]),
    )

    assert found["prompts"] == [[1, 2]]
    assert found["responses"] == [[5, 6]]
    assert found["response_mask"] == [[True, True]]
    assert found["old_log_probs"] == [[-2.0, -3.0]]


def test_the_first_token_is_prompt_even_where_the_mask_has_it() -> None:
    found = divide(ids=torch.tensor([[4, 5]]), mask=torch.tensor([[1, 1]]))

    assert (found["prompts"], found["responses"]) == ([[4]], [[5]])


def test_a_row_of_nothing_written_is_all_prompt() -> None:
    found = divide(ids=torch.tensor([[4, 5]]), mask=torch.tensor([[0, 0]]))

    assert (found["prompts"], found["responses"]) == ([[4, 5]], [[]])


@pytest.mark.parametrize("count", [0, 1])
def test_rows_without_a_token_are_rows(count: int) -> None:
    empty = [torch.zeros(0, dtype=torch.int64)] * count
    found = divide(ids=empty, mask=empty, attention_mask=empty)

    assert found["responses"] == [[]] * count


def test_position_ids_lose_the_padding_and_keep_their_shape() -> None:
    (row,) = divide(
        ids=torch.tensor([[0, 1, 5, 0]]),
        attention_mask=torch.tensor([[0, 1, 1, 0]]),
        mask=torch.tensor([[0, 0, 1, 0]]),
        position_ids=torch.tensor([[[9, 0, 1, 9]] * 3]),
    )["position_ids"]

    assert row == [[0, 1]] * 3


WIDE = torch.ones(2, 4)
LENGTHS = "expected 2 rows, as long as those of `ids` or without the first token; found"
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "fewer": (
        {"ids": WIDE, "mask": WIDE, "lp": torch.zeros(2, 2)},
        f"`lp`: {LENGTHS} 2 of 2 rows with another length, by 2: 0, 1 (row 0 has 2,",
    ),
    "more": (
        {"ids": WIDE, "mask": WIDE, "lp": torch.zeros(2, 5)},
        f"`lp`: {LENGTHS} 2 of 2 rows with another length, by 1: 0, 1 (row 0 has 5,",
    ),
    "one row": (
        {"ids": WIDE, "mask": WIDE, "lp": torch.zeros(1, 4)},
        f"`lp`: {LENGTHS} 1 rows.",
    ),
    "two dimensions": (
        {"ids": WIDE, "mask": torch.ones(2, 3, 4)},
        "`mask`: expected one value per token; found rows of 2 dimensions.",
    ),
    "no ids": ({"mask": WIDE}, "`ids`: expected this field; found only mask."),
    "no mask": ({"ids": WIDE}, "`mask`: expected this field; found only ids."),
    "no rows": (
        {"ids": 3, "mask": WIDE},
        "`ids`: expected rows of numbers; found no rows.",
    ),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_a_field_that_does_not_fit_is_an_error(
    content: dict[str, Any], message: str
) -> None:
    with pytest.raises(LoadError, match=f"^{re.escape(f'f.pt: {message}')}"):
        divide(**content)


@given(
    st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=4)
)
def test_nothing_written_is_lost_and_prompt_and_response_are_the_sequence(
    masks: list[list[bool]],
) -> None:
    rows = [torch.tensor(mask) for mask in masks]
    ids = [torch.arange(len(mask)) for mask in masks]
    found = divide_sequences(
        {"ids": ids, "mask": rows}, "f", tokens="ids", written="mask", names={}
    )
    parts = zip(found["prompts"], found["responses"], strict=True)

    assert [torch.cat(pair).tolist() for pair in parts] == [row.tolist() for row in ids]
    assert [int(row.sum()) for row in found["response_mask"]] == [
        sum(mask[1:]) for mask in masks
    ]

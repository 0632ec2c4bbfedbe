"""verl's names as a Batch: missing and wrong fields are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.field_batch import batch_from_fields
from tests.loaders.fields.hand_batch import SAME, built, refuses
from tests.loaders.table_cases import says
from tests.loaders.verl_writer import small_batch, write

MASK_LACKS = (
    "expected a mask of the tokens that the model wrote; found only prompts, responses,"
    " rollout_log_probs, old_log_probs. Save `response_mask` as well: without it,"
    " generated tokens cannot be distinguished from observations."
)
WIDE = f"expected 2 rows of 4 positions; found 2 rows of 5 positions. {SAME}"
# The field that is named, what it says, and the changed fields.
REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("response_mask", MASK_LACKS, {"response_mask": None, "attention_mask": None}),
    (
        "old_log_probs",
        f"expected 2 rows of 4 positions; found 2 rows of 6 positions. {SAME}",
        {"old_log_probs": torch.zeros(2, 6)},
    ),
    (
        "old_log_probs",
        f"expected 2 rows of 4 positions; found 2 rows of [4, 3] positions. {SAME}",
        {"old_log_probs": [torch.zeros(4), torch.zeros(3)]},
    ),
    (
        "old_log_probs",
        f"expected rows of numbers; found no rows. {SAME}",
        {"old_log_probs": torch.tensor(1.0)},
    ),
    (
        "attention_mask",
        "expected [6] positions per row, of prompt and response; found [7]. " + SAME,
        {"attention_mask": torch.ones(2, 7)},
    ),
    (
        "attention_mask",
        f"expected at least 2 rows of 4 positions; found 2 rows of 3 positions. {SAME}",
        {"attention_mask": torch.ones(2, 3), "prompts": None},
    ),
    (
        "prompts",
        f"expected 2 rows of positions; found 3 rows of 2 positions. {SAME}",
        {"prompts": torch.ones(3, 2, dtype=torch.int64)},
    ),
    (
        "position_ids",
        "expected rows as long as those of `attention_mask`; found 2 rows of [5]"
        f" positions. {SAME}",
        {"position_ids": torch.ones(2, 3, 5)},
    ),
    ("response_mask", WIDE, {"response_mask": torch.ones(2, 5)}),
    ("loss_mask", WIDE, {"loss_mask": torch.ones(2, 5)}),
    (
        "response_mask",
        f"expected 2 rows of 4 positions; found 1 rows of 6 positions. {SAME}",
        {"response_mask": torch.ones(1, 6)},
    ),
]


@pytest.mark.parametrize(("key", "message", "changes"), REFUSED)
def test_a_field_that_is_missing_or_does_not_fit_is_named(
    key: str, message: str, changes: dict[str, Any]
) -> None:
    refuses(f"`{key}`: {message}", **changes)


@pytest.mark.parametrize(
    ("missing", "has"),
    [
        (["old_log_probs"], "the sampler's log-probs only"),
        (["rollout_log_probs"], "the training engine's log-probs only"),
        (["old_log_probs", "rollout_log_probs"], "no log-probs"),
    ],
)
def test_a_file_opens_with_the_log_probs_that_it_has(
    tmp_path: Path, missing: list[str], has: str
) -> None:
    fields = small_batch()
    whole = load(write(tmp_path / "batch.dp", fields))
    for name in missing:
        del fields[name]
    batch = load(write(tmp_path / "gen_batch.dp", fields))
    assert str(batch.lacks("old", "rollout")).startswith(f"This batch has {has}: ")
    there = {name for name in whole.per_token if name not in missing}
    assert {*batch.per_token} == there
    assert all(torch.equal(batch.per_token[n], whole.per_token[n]) for n in there)


def test_a_mask_with_other_values_is_refused_by_the_batch() -> None:
    mask = torch.tensor([[1, 2, 0, 1], [1, 0, 0, 0]])
    with pytest.raises(LoadError, match=r"^step_7\.pkl: `response_mask`: expected "):
        built(response_mask=mask)


IDS = {
    "responses": [torch.tensor([5, 6]), torch.tensor([7, 8])],
    "rollout_log_probs": [torch.zeros(2), torch.zeros(2)],
    "old_log_probs": [torch.ones(2), torch.ones(2)],
}


PROMPTS = {"prompts": [torch.tensor([1, 2, 3]), torch.tensor([4, 5])]}


@pytest.mark.parametrize(
    ("others", "row"),
    [
        ({}, [1, 1, 0]),
        (PROMPTS, [1, 1, 0]),
        (PROMPTS, [0, 0, 0, 1, 1]),  # as long as one prompt and response, not both
        ({"attention_mask": [torch.ones(4), torch.ones(4)]}, [1, 1, 0]),
        ({"input_ids": torch.ones(2, 5)}, [1, 1, 0]),
    ],
)
def test_a_mask_is_not_cut_where_it_is_not_of_prompt_and_response(
    others: dict[str, Any], row: list[int]
) -> None:
    mask = [torch.tensor(row)] * 2
    message = (
        "f: `response_mask`: expected 2 rows of [2, 2] positions; found 2 rows of"
        f" {[len(row)] * 2} positions. {SAME}"
    )
    with says(message):
        batch_from_fields({**IDS, **others, "response_mask": mask}, source="f")

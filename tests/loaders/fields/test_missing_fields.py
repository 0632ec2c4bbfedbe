"""verl's names as a Batch: missing and wrong fields are named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.fields.mapping import batch_from_fields
from tests.loaders.fields.hand_batch import SAME, built, refuses
from tests.loaders.table_cases import says
from tests.loaders.verl_writer import small_batch, write

if TYPE_CHECKING:
    from pathlib import Path


def test_no_mask_at_all_is_refused() -> None:
    refuses(
        "`response_mask`: expected a mask of the tokens that the model wrote; found"
        " only prompts, responses, rollout_log_probs, old_log_probs. Save"
        " `response_mask` as well: without it, generated tokens cannot be told apart"
        " from observations.",
        response_mask=None,
        attention_mask=None,
    )


def test_a_rollout_without_old_log_probs_is_refused_with_what_to_save(
    tmp_path: Path,
) -> None:
    fields = small_batch()
    del fields["old_log_probs"]
    path = write(tmp_path / "gen_batch.dp", fields)

    message = (
        f"{path}: `old_log_probs`: expected the log-probabilities of the training"
        " engine; found only prompts, responses, response_mask, attention_mask,"
        " rollout_log_probs. The file was written before the training engine computed"
        " them, as verl's gen_batch.dp and tq_batch.pt are: save it after"
        " `batch = batch.union(old_log_prob)`, with"
        " `rounddiag.capture.save_batch(batch, path)`."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        load(path)


def test_missing_rollout_log_probs_are_reported_with_how_to_get_them() -> None:
    refuses(
        "`rollout_log_probs`: expected the log-probabilities of the sampling engine;"
        " found only prompts, responses, response_mask, attention_mask, old_log_probs."
        " Let the sampler return them"
        " (`actor_rollout_ref.rollout.calculate_log_probs=True` in verl) and save"
        " again.",
        rollout_log_probs=None,
    )


def test_log_probs_of_another_shape_are_refused() -> None:
    refuses(
        "`old_log_probs`: expected 2 rows of 4 positions; found 2 rows of 6 positions."
        f" {SAME}",
        old_log_probs=torch.zeros(2, 6),
    )


def test_rows_where_one_field_is_nested_and_longer_are_refused() -> None:
    refuses(
        "`old_log_probs`: expected 2 rows of 4 positions; found 2 rows of [4, 3]"
        f" positions. {SAME}",
        old_log_probs=[torch.zeros(4), torch.zeros(3)],
    )


def test_an_attention_mask_of_another_width_is_refused() -> None:
    refuses(
        "`attention_mask`: expected [6] positions per row, of prompt and response;"
        f" found [7]. {SAME}",
        attention_mask=torch.ones(2, 7),
    )


def test_an_attention_mask_narrower_than_the_responses_is_refused() -> None:
    refuses(
        "`attention_mask`: expected at least 2 rows of 4 positions; found 2 rows of 3"
        f" positions. {SAME}",
        attention_mask=torch.ones(2, 3),
        prompts=None,
    )


def test_prompts_of_other_samples_are_refused() -> None:
    refuses(
        f"`prompts`: expected 2 rows of positions; found 3 rows of 2 positions. {SAME}",
        prompts=torch.ones(3, 2, dtype=torch.int64),
    )


def test_position_ids_of_another_width_are_refused() -> None:
    refuses(
        "`position_ids`: expected rows as long as those of `attention_mask`; found 2"
        f" rows of [5] positions. {SAME}",
        position_ids=torch.ones(2, 3, 5),
    )


def test_a_mask_with_other_values_is_refused_by_the_batch() -> None:
    mask = torch.tensor([[1, 2, 0, 1], [1, 0, 0, 0]])
    with pytest.raises(LoadError, match=r"^step_7\.pkl: `response_mask`: expected "):
        built(response_mask=mask)


def test_a_field_that_is_no_rows_is_refused() -> None:
    refuses(
        f"`old_log_probs`: expected rows of numbers; found no rows. {SAME}",
        old_log_probs=torch.tensor(1.0),
    )


@pytest.mark.parametrize("name", ["response_mask", "loss_mask"])
def test_a_mask_that_is_longer_than_the_response_is_refused(name: str) -> None:
    refuses(
        f"`{name}`: expected 2 rows of 4 positions; found 2 rows of 5 positions."
        f" {SAME}",
        **{name: torch.ones(2, 5)},
    )


IDS = {
    "responses": [torch.tensor([5, 6]), torch.tensor([7, 8])],
    "rollout_log_probs": [torch.zeros(2), torch.zeros(2)],
    "old_log_probs": [torch.ones(2), torch.ones(2)],
}


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"prompts": [torch.tensor([1, 2, 3]), torch.tensor([4, 5])]},
        {"attention_mask": [torch.ones(4), torch.ones(4)]},
        {"input_ids": torch.ones(2, 5)},
    ],
)
def test_a_mask_is_not_cut_where_it_is_not_of_prompt_and_response(
    others: dict[str, Any],
) -> None:
    mask = [torch.tensor([1, 1, 0]), torch.tensor([1, 1, 0])]
    message = (
        "f: `response_mask`: expected 2 rows of [2, 2] positions; found 2 rows of"
        f" [3, 3] positions. {SAME}"
    )
    with says(message):
        batch_from_fields({**IDS, **others, "response_mask": mask}, source="f")


def test_an_uneven_mask_is_not_cut_either() -> None:
    prompts = [torch.tensor([1, 2, 3]), torch.tensor([4, 5])]
    mask = [torch.tensor([0, 0, 0, 1, 1]), torch.tensor([0, 0, 0, 1, 1])]
    message = (
        "f: `response_mask`: expected 2 rows of [2, 2] positions; found 2 rows of"
        f" [5, 5] positions. {SAME}"
    )
    with says(message):
        batch_from_fields(
            {**IDS, "prompts": prompts, "response_mask": mask}, source="f"
        )


def test_a_mask_of_fewer_rows_is_refused() -> None:
    refuses(
        "`response_mask`: expected 2 rows of 4 positions; found 1 rows of 6 positions."
        f" {SAME}",
        response_mask=torch.ones(1, 6),
    )

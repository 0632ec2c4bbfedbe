"""verl's names as a Batch: what stands in for what, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.loaders.field_batch import batch_from_fields
from tests.loaders.fields.hand_batch import built
from tests.loaders.verl_writer import small_batch


def test_the_loss_mask_stands_in_for_a_missing_response_mask() -> None:
    batch = built(
        response_mask=None, loss_mask=torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0]])
    )

    assert batch.meta["mask_source"] == "loss_mask"
    assert batch.rounds.num_tokens.tolist() == [1, 1, 1]
    assert "rounds" not in batch.meta


def test_a_loss_mask_of_prompt_and_response_is_cut_to_the_response() -> None:
    whole = torch.tensor([[0, 0, 0, 1, 0, 1], [0, 0, 1, 0, 0, 0]])

    assert built(loss_mask=whole).loss_mask.tolist() == [0, 1, 0, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("whole", ["prompts", "input_ids", "attention_mask"])
def test_a_mask_of_rows_of_prompt_and_response_is_cut_to_the_response(
    whole: str,
) -> None:
    rows = [torch.tensor([5, 6]), torch.tensor([7, 8])]
    lengths = (3, 2) if whole == "prompts" else (5, 4)
    fields = {
        "responses": rows,
        "rollout_log_probs": [torch.zeros(2)] * 2,
        "old_log_probs": [torch.ones(2)] * 2,
        "response_mask": [torch.tensor([0, 0, 0, 1, 0]), torch.tensor([0, 0, 1, 1])],
        whole: [torch.ones(length) for length in lengths],
    }

    batch = batch_from_fields(fields, source="memory")
    assert batch.response_mask.tolist() == [1, 0, 1, 1]


def test_the_attention_mask_stands_in_last_and_merges_all_rounds() -> None:
    batch = built(response_mask=None)

    assert batch.meta["mask_source"] == "attention_mask"
    assert batch.meta["rounds"] == "unknown"
    assert batch.rounds.num_tokens.tolist() == [4, 1]


def test_nested_fields_need_no_padding() -> None:
    rows = {
        name: torch.nested.as_nested_tensor(
            [value[0], value[1, :1]], layout=torch.jagged
        )
        for name, value in small_batch().items()
        if name not in {"prompts", "attention_mask"}
    }
    batch = batch_from_fields(rows, source="memory")

    assert batch.offsets.tolist() == [0, 4, 5]
    assert batch.lengths.tolist() == [4, 1]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1]


def test_padded_fields_are_not_copied() -> None:
    fields = small_batch()
    batch = batch_from_fields(fields, source="memory")

    shared = fields["old_log_probs"].data_ptr()
    assert batch.log_probs("old").data_ptr() == shared


def test_a_field_is_looked_up_once() -> None:
    class Counting(dict[str, torch.Tensor]):
        reads: list[str] = []  # noqa: RUF012 one test

        def get(self, name: str, default: Any = None) -> Any:
            self.reads.append(name)
            return super().get(name, default)

    fields = Counting(small_batch())
    batch_from_fields(fields, source="memory")

    read = [name for name in fields.reads if name in fields and "mask" not in name]
    assert sorted(read) == [
        "old_log_probs",
        "prompts",
        "responses",
        "rollout_log_probs",
    ]


def test_rewards_are_the_sums_of_token_level_scores() -> None:
    scores = torch.tensor([[0.0, 0.5, 0.0, 1.0], [-1.0, 0.0, 0.0, 0.0]])

    assert built(token_level_scores=scores).rewards.tolist() == [1.5, -1.0]
    assert built(rm_scores=scores).rewards.tolist() == [1.5, -1.0]
    assert built().rewards is None


def test_a_column_of_rewards_serves_too() -> None:
    batch = batch_from_fields(
        small_batch(), source="memory", columns={"rewards": np.array([1, 0])}
    )

    assert batch.rewards.tolist() == [1.0, 0.0]
    assert batch.sample_columns == {}


def test_a_reward_of_none_is_not_a_number() -> None:
    batch = batch_from_fields(
        small_batch(), source="memory", columns={"rewards": [1, None]}
    )

    assert batch.rewards.isnan().tolist() == [False, True]


def test_rewards_in_words_stay_a_column() -> None:
    batch = batch_from_fields(
        small_batch(), source="memory", columns={"rewards": ["good", "bad"]}
    )

    assert batch.rewards is None
    assert batch.sample_columns["rewards"].tolist() == ["good", "bad"]


def test_every_other_log_prob_is_a_score() -> None:
    other = torch.full((2, 4), -3.0)
    batch = built(ref_log_prob=other, current_log_probs=other)

    assert sorted(batch.scores) == ["current", "ref"]
    assert batch.scores["ref"].tolist() == [-3.0] * 8


def test_only_plain_columns_are_kept() -> None:
    columns = {
        "uid": ["a", "a"],
        "turns": np.array([2, 3], dtype=np.int32),
        "env": ["shop", None],
        "done": [True, False],
        "score": [0.5, np.float32(1.5)],
        "chat": [[{"role": "user"}], []],
        "short": ["a"],
    }
    batch = batch_from_fields(small_batch(), source="memory", columns=columns)

    assert batch.group_ids == ("a", "a")
    kept = {name: values.tolist() for name, values in batch.sample_columns.items()}
    assert kept == {
        "turns": [2, 3],
        "env": ["shop", None],
        "done": [True, False],
        "score": [0.5, 1.5],
    }
    assert batch.sample_columns["turns"].dtype == np.int32


def test_the_step_and_the_sampling_come_from_the_info() -> None:
    info = {"temperature": 0.7, "top_k": -1, "global_steps": 12, "timing": {"gen": 1.0}}
    batch = batch_from_fields(small_batch(), source="memory", info=info)

    assert batch.step == 12
    assert batch.meta == {
        "source": "memory",
        "mask_source": "response_mask",
        "old_log_probs_source": "unknown",
        "sampling": {"temperature": 0.7, "top_k": -1},
    }


def test_no_samples_are_a_batch_too() -> None:
    empty = {name: value[:0] for name, value in small_batch().items()}
    batch = batch_from_fields(
        {**empty, "rm_scores": torch.zeros(0, 4)}, source="memory", columns={"uid": []}
    )

    assert batch.num_samples == 0
    assert batch.num_rounds == 0

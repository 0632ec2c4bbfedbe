"""Files in the layout of NeMo-RL's `train_data_step{N}.jsonl`."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.batch import Batch
from rounddiag.core import token_frame
from rounddiag.loaders import load
from tests.loaders.nemo_rl_writer import record, small_step, wrapped, write

Fields = dict[str, Any]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train_data_step12.jsonl"


@pytest.fixture
def batch(path: Path) -> Batch:
    return load(write(path, small_step()))


def test_rounds_are_the_runs_of_the_token_mask(batch: Batch) -> None:
    frame = token_frame(batch)

    assert frame["sample"].tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert frame["round"].tolist() == [0, 0, 1, 0, 0, 0, 0]
    assert frame["diff"].tolist() == [
        *(-0.375, -0.5, -0.875),
        *(-0.375, -0.5),
        *(-0.125, -0.25),
    ]


def test_a_sequence_is_divided_where_the_model_first_wrote(batch: Batch) -> None:
    assert batch.prompt_ids.tolist() == [1, 2, 3, 1, 2, 3, 6]
    assert batch.prompt_offsets.tolist() == [0, 3, 6, 7]
    assert batch.require_ids().tolist() == [10, 11, 4, 5, 12, 13, 14, 15, 16]
    assert batch.require_ids().dtype == torch.int32
    assert batch.lengths.tolist() == [5, 2, 2]
    assert batch.meta["prompt_source"] == (
        "the tokens before the first 1 of `token_loss_mask`"
    )


def test_samples_of_the_same_prompt_are_a_group(batch: Batch) -> None:
    assert batch.group_ids is not None
    first, second, third = batch.group_ids
    assert first == second != third
    assert batch.meta["group_source"] == "samples whose prompts have the same tokens"


def test_a_rejected_sample_keeps_its_rounds(batch: Batch) -> None:
    assert batch.response_mask.tolist() == [1, 1, 0, 0, 1, 1, 1, 1, 1]
    assert batch.loss_mask.tolist() == [1, 1, 0, 0, 1, 1, 1, 0, 0]
    assert batch.meta["mask_source"] == "token_loss_mask"


def test_rewards_advantages_and_the_step_of_the_name_are_kept(batch: Batch) -> None:
    assert batch.rewards.tolist() == [1.0, 0.0, 1.0]
    assert batch.advantages.tolist() == [0.5, 0.5, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert batch.step == 12
    assert batch.meta["old_log_probs_source"] == "a pass of its own"


def test_other_values_are_columns_and_messages_are_json_text(batch: Batch) -> None:
    columns = batch.sample_columns

    assert set(columns) == {"content", "input_lengths", "sample_loss_mask", "idx"}
    assert columns["input_lengths"].tolist() == [8, 5, 3]
    assert columns["idx"].tolist() == [0, 1, 2]
    assert json.loads(columns["content"][0]) == ["What is it?", "It is <b>5</b>."]


def test_many_samples_stay_in_order(path: Path) -> None:
    rows = [
        record([1, *range(n % 7 + 1)], [0] + [1] * (n % 7 + 1), rewards=n / 2)
        for n in range(600)
    ]
    batch = load(write(path, rows))

    assert batch.rewards.tolist() == [n / 2 for n in range(600)]
    assert batch.lengths.tolist() == [n % 7 + 1 for n in range(600)]
    assert batch.group_ids is not None
    assert len(set(batch.group_ids)) == 1


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1))
def test_rounds_are_runs_whatever_the_mask(masks: list[list[bool]]) -> None:
    rows = [record(range(len(mask) + 1), [0, *map(int, mask)]) for mask in masks]
    with TemporaryDirectory() as folder:
        batch = load(write(Path(folder) / "train_data_step0.jsonl", rows))
    runs = [[len(list(run)) for on, run in groupby(mask) if on] for mask in masks]

    assert batch.rounds.num_tokens.tolist() == [size for row in runs for size in row]
    assert batch.rounds.sample.tolist() == [
        sample for sample, row in enumerate(runs) for _ in row
    ]


def test_the_columns_of_dynamic_sampling_and_of_gym_are_kept(path: Path) -> None:
    more: Fields = {"filtered_rewards": 0.5, "agent_ref": {"name": "math"}}
    batch = load(write(path, [record([1, 2, 3], [0, 1, 1], **more)]))

    assert batch.sample_columns["filtered_rewards"].tolist() == [0.5]
    assert batch.sample_columns["agent_ref"].tolist() == ['{"name": "math"}']


def test_bare_nan_and_infinity_stay_tokens(path: Path) -> None:
    odd = [0.0, float("nan"), float("-inf"), -0.5]
    batch = load(write(path, [record([1, 2, 3, 4], [0, 1, 1, 1], prev_logprobs=odd)]))

    assert batch.num_tokens == 3
    assert batch.log_probs("old")[0].isnan()
    assert batch.log_probs("old")[1:].tolist() == [float("-inf"), -0.5]


def test_a_skipped_pass_of_the_training_engine_is_not_measurable(path: Path) -> None:
    skipped = record([1, 2, 3], [0, 1, 1], prev_logprobs=[0.0, 0.0, 0.0])
    batch = load(write(path, [skipped]))

    assert batch.meta["not_measurable"] == (
        "`prev_logprobs` is 0 at all generated tokens: NeMo-RL skipped the pass"
        " (`force_on_policy_ratio`)"
    )


def test_a_pass_that_was_made_is_measurable(batch: Batch) -> None:
    assert "not_measurable" not in batch.meta


def test_a_sample_without_generated_tokens_is_all_prompt(path: Path) -> None:
    batch = load(write(path, [record([1, 2], [0, 0]), *small_step()]))

    assert batch.lengths.tolist() == [0, 5, 2, 2]
    assert batch.rounds.sample.tolist() == [1, 1, 2, 3]
    assert "not_measurable" not in batch.meta


def test_the_first_token_is_prompt_whatever_the_mask_says(path: Path) -> None:
    batch = load(write(path, [record([1, 2, 3], [1, 1, 0])]))

    assert batch.prompt_ids.tolist() == [1]
    assert batch.response_mask.tolist() == [1, 0]


def test_log_probs_by_another_model_are_a_score(path: Path) -> None:
    more: Fields = {"reference_policy_logprobs": [0.0, -1.0, -2.0]}
    batch = load(write(path, [record([1, 2, 3], [0, 1, 1], **more)]))

    assert batch.scores["reference_policy"].tolist() == [-1.0, -2.0]


def test_other_numbers_of_tokens_are_columns_of_tokens(path: Path) -> None:
    more: Fields = {"routing": [7, 8, 9]}
    batch = load(write(path, [record([1, 2, 3], [0, 1, 1], **more)]))

    assert batch.token_columns["routing"].tolist() == [8, 9]


def test_a_sample_of_one_token_is_not_mistaken_for_a_wrapped_value(path: Path) -> None:
    row = wrapped(record([5], [0]), 0)
    path.write_text(json.dumps(row))
    batch = load(path)

    assert batch.lengths.tolist() == [0]
    assert batch.prompt_ids.tolist() == [5]

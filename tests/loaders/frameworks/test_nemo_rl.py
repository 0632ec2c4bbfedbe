"""Files in the layout of NeMo-RL's `train_data_step{N}.jsonl`."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.loaders import load
from tests.loaders.facts import has
from tests.loaders.nemo_rl_writer import record, small_step, wrapped, write

ODD = [0.0, float("nan"), float("-inf"), -0.5]
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "two samples of a prompt, and one that was rejected": (
        small_step(),
        {
            "prompt_ids": [1, 2, 3, 1, 2, 3, 6],
            "prompt_offsets": [0, 3, 6, 7],
            "response_ids": [10, 11, 4, 5, 12, 13, 14, 15, 16],
            "lengths": [5, 2, 2],
            "response_mask": [1, 1, 0, 0, 1, 1, 1, 1, 1],
            "loss_mask": [1, 1, 0, 0, 1, 1, 1, 0, 0],
            "rollout_log_probs": [
                *(-0.375, -0.5, 0, 0, -0.875, -0.375, -0.5, -0.125, -0.25)
            ],
            "old_log_probs": [-0.75, -1, -1.25, -1.5, -1.75, -0.75, -1, -0.25, -0.5],
            "rewards": [1.0, 0.0, 1.0],
            "advantages": [0.5, 0.5, 0, 0, 0.5, 0.5, 0.5, 0.5, 0.5],
            "step": 12,
            "sample.content": ['["What is it?", "It is <b>5</b>."]'] * 3,
            "sample.input_lengths": [8, 5, 3],
            "sample.idx": [0, 1, 2],
            "meta.mask_source": "token_loss_mask",
            "meta.prompt_source": "the tokens before the first 1 of `token_loss_mask`",
            "meta.group_source": "samples whose prompts have the same tokens",
            "meta.old_log_probs_source": "a pass of its own",
            "meta.not_measurable": None,
        },
    ),
    "columns of dynamic sampling and of Gym": (
        [record([1, 2, 3], [0, 1, 1], filtered_rewards=0.5, agent_ref={"name": "m"})],
        {"sample.filtered_rewards": [0.5], "sample.agent_ref": ['{"name": "m"}']},
    ),
    "NaN and infinity stay tokens": (
        [record([1, 2, 3, 4], [0, 1, 1, 1], prev_logprobs=ODD)],
        {"num_tokens": 3, "old_log_probs": [None, float("-inf"), -0.5]},
    ),
    "the pass of the training engine was skipped": (
        [record([1, 2, 3], [0, 1, 1], prev_logprobs=[0.0] * 3)],
        {
            "meta.not_measurable": "`prev_logprobs` is 0 at all generated tokens:"
            " NeMo-RL skipped the pass (`force_on_policy_ratio`)"
        },
    ),
    "a sample without generated tokens is all prompt": (
        [record([1, 2], [0, 0]), *small_step()],
        {
            "lengths": [0, 5, 2, 2],
            "rounds.sample": [1, 1, 2, 3],
            "meta.not_measurable": None,
        },
    ),
    "the first token is prompt whatever the mask says": (
        [record([1, 2, 3], [1, 1, 0])],
        {"prompt_ids": [1], "response_mask": [1, 0]},
    ),
    "log-probs by another model are a score": (
        [record([1, 2, 3], [0, 1, 1], reference_policy_logprobs=[0.0, -1.0, -2.0])],
        {"score.reference_policy": [-1.0, -2.0]},
    ),
    "other numbers of tokens are columns of tokens": (
        [record([1, 2, 3], [0, 1, 1], routing=[7, 8, 9])],
        {"token.routing": [8, 9]},
    ),
    "many samples stay in order": (
        [
            record([1, *range(n % 7 + 1)], [0] + [1] * (n % 7 + 1), rewards=n / 2)
            for n in range(600)
        ],
        {
            "rewards": [n / 2 for n in range(600)],
            "lengths": [n % 7 + 1 for n in range(600)],
        },
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train_data_step12.jsonl"


@pytest.mark.parametrize(("records", "expected"), CASES.values(), ids=CASES)
def test_a_file_is_read(records: Any, expected: dict[str, Any], path: Path) -> None:
    has(load(write(path, records)), expected)


def test_samples_of_the_same_prompt_are_a_group(path: Path) -> None:
    first, second, third = load(write(path, small_step())).group_ids
    assert first == second != third


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


def test_a_sample_of_one_token_is_not_mistaken_for_a_wrapped_value(path: Path) -> None:
    path.write_text(json.dumps(wrapped(record([5], [0]), 0)))
    has(load(path), {"lengths": [0], "prompt_ids": [5]})

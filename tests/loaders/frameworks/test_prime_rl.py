"""Files in the layout of prime-rl's token export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rounddiag.core.divergence import k3
from rounddiag.loaders import load
from tests.loaders.facts import has
from tests.loaders.prime_rl_writer import Record, record, small_step, write


def masked(**others: Any) -> Record:
    """Return a record of two generated tokens after one of the prompt."""
    return record([1, 2, 3], [False, True, True], **others)


WITHOUT_CLIPPING = masked()
del WITHOUT_CLIPPING["is_masked"]
FIRST, SECOND = small_step()
CASES: dict[str, tuple[list[Record], dict[str, Any]]] = {
    "two samples of one prompt": (
        small_step(),
        {
            "response_ids": [10, 11, 3, 12, 13],
            "rounds.sample": [0, 0, 1],
            "rounds.num_tokens": [2, 1, 1],
            "rollout_log_probs": [-0.25, -0.375, 0, -0.625, -0.25],
            "old_log_probs": [-0.5, -0.75, -1, -1.25, -0.5],
            "entropy": [1.0, 1.5, 2.0, 2.5, 1.0],
            "advantages": [0.5, 0.5, 0.0, 0.5, 0.5],
            "position_ids": [[0, 1, 2, 3, 4, 5], [0, 1, 2]],
            "step": 7,
            "sample_columns": {
                "step": [7, 7],
                "rank": [0, 0],
                "micro_step": [0, 0],
                "micro_sequence_idx": [0, 1],
                "export_sequence_idx": [0, 1],
                "env_name": ["gui", "gui"],
            },
            "meta.mask_source": "loss_mask",
            "meta.old_log_probs_source": "the training pass itself",
            "meta.left_out": [
                *("importance_ratio", "is_masked_high", "is_masked_low"),
                *("log_importance_ratio", "mismatch_kl", "prob_delta"),
            ],
        },
    ),
    "the filler of the first position is no log-prob": (
        [record([1, 2, 3], [True, True, True])],
        {"response_ids": [2, 3], "old_log_probs": [-0.25, -0.5]},
    ),
    "tokens that the loss clipped are out of the loss mask": (
        [masked(is_masked=[False, True, False])],
        {"response_mask": [1, 1], "loss_mask": [0, 1]},
    ),
    "a loss that clips nothing": (
        [masked(is_masked=[None] * 3)],
        {"loss_mask": [1, 1]},
    ),
    "a loss that cannot clip": ([WITHOUT_CLIPPING], {"loss_mask": [1, 1]}),
    "a lost log-prob stays a token without a value": (
        [masked(inference_logprobs=[None, None, -1.0])],
        {"rollout_log_probs": [None, -1.0], "num_tokens": 2},
    ),
    "a later release has runs, and rewards and losses of each token": (
        [
            masked(
                export_step=3,
                run_id="run_a",
                rewards=[1.5] * 3,
                losses=[{"rl": {"mask": on}} for on in (False, True, True)],
            )
        ],
        {
            "step": 3,
            "rewards": [1.5],
            "sample.run_id": ["run_a"],
            "meta.left_out": [
                *("importance_ratio", "is_masked_high", "is_masked_low"),
                *(
                    "log_importance_ratio",
                    "losses",
                    "mismatch_kl",
                    "prob_delta",
                    "step",
                ),
            ],
        },
    ),
    "rewards that were not exported": (
        [{**FIRST, "rewards": [None] * 6}, {**SECOND, "rewards": [None] * 3}],
        {"rewards": None},
    ),
    "a reward that one sample lacks": (
        [{**FIRST, "rewards": [2.0] * 6}, {**SECOND, "rewards": [None] * 3}],
        {"rewards": [2.0, None]},
    ),
    "rewards that differ in a sample": (
        [{**FIRST, "rewards": [2.0] * 6}, masked(rewards=[0.0, 1.0, 2.0])],
        {"rewards": [2.0, None]},
    ),
    "log-probs by another model are a score": (
        [masked(ref_logprobs=[None, -1.0, -2.0])],
        {"score.ref": [-1.0, -2.0]},
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "token_exports" / "step_7" / "rank_0.jsonl"


@pytest.mark.parametrize(("records", "expected"), CASES.values(), ids=CASES)
def test_a_file_is_read(
    records: list[Record], expected: dict[str, Any], path: Path
) -> None:
    has(load(write(path, records)), expected)


def test_the_mismatch_is_the_one_that_prime_rl_computed(path: Path) -> None:
    rows = small_step()
    batch = load(write(path, rows))
    theirs = [
        value
        for row in rows
        for value, on in zip(row["mismatch_kl"], row["loss_mask"], strict=True)
        if on
    ]
    written = batch.response_mask != 0
    ours = k3((batch.log_probs("old") - batch.log_probs("rollout"))[written].double())
    assert ours.tolist() == pytest.approx(theirs)
    assert batch.group_ids[0] == batch.group_ids[1]


def test_the_ranks_of_a_step_are_joined(path: Path) -> None:
    write(path, small_step())
    write(path.with_name("rank_1.jsonl"), [record([6, 7], [False, True], rank=1)])
    (path.parent / "STABLE").touch()
    has(load(path.parent), {"num_samples": 3, "sample.rank": [0, 0, 1]})


def test_a_line_may_be_spaced_as_json_allows(path: Path) -> None:
    path.parent.mkdir(parents=True)
    lines = [json.dumps(row, separators=(" , ", " : ")) for row in small_step()]
    path.write_text("\r\n".join(["", *lines, "  "]))
    assert load(path).num_tokens == 4

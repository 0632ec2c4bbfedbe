"""What verl's agent loop knows: extra fields, records of rounds, versions, routes."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag import check, round_frame, token_frame
from rounddiag.core import sample_frame
from rounddiag.loaders import load
from tests.loaders.verl_writer import small_batch, write

RECORDS = [
    [
        {"request_id": "a", "weight_version": 3},
        {"request_id": "a", "weight_version": 4},
    ],
    [{"request_id": "b", "weight_version": np.int64(4), "image_hashes": ["ff"]}],
]
EXTRA: list[dict[str, Any]] = [
    {
        "round_records": RECORDS[0],
        "min_global_steps": 3,
        "max_global_steps": np.int64(4),
        "turn_scores": [0.5, 1.0],
        "reward_extra_info": {"acc": 1.0, "notes": ["x"]},
    },
    {
        "round_records": RECORDS[1],
        "min_global_steps": 4,
        "max_global_steps": 4,
        "turn_scores": [0.25],
        "reward_extra_info": {"acc": np.float64(0.5)},
    },
]


def test_extra_fields_of_a_pickled_batch_become_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.pkl", small_batch(), {"extra_fields": EXTRA})

    batch = load(path)

    samples, rounds = sample_frame(batch), round_frame(batch)
    assert samples["min_global_steps"].tolist() == [3, 4]
    assert samples["max_global_steps"].tolist() == [4, 4]
    assert samples["acc"].tolist() == [1.0, 0.5]
    assert rounds["request_id"].tolist() == ["a", "a", "b"]
    assert rounds["weight_version"].tolist() == [3, 4, 4]
    assert rounds["turn_score"].tolist() == [0.5, 1.0, 0.25]
    assert batch.meta["left_out"] == ["notes"]
    mixed = [one for one in check(batch).failed if "version" in one.name]
    assert [one.samples for one in mixed] == [(0,)]


def test_columns_of_the_older_trainer_are_read_alike(tmp_path: Path) -> None:
    columns = {
        "round_records": RECORDS,
        "turn_scores": [[0.5, 1.0], [0.25]],
        "reward_extra_info": [{"acc": 1}, {"acc": 0}],
        "min_global_steps": [3, 4],
    }
    batch = load(write(tmp_path / "a.pkl", small_batch(), columns))

    assert round_frame(batch)["turn_score"].tolist() == [0.5, 1.0, 0.25]
    assert batch.round_columns["image_hashes"].tolist() == [None, None, ["ff"]]
    assert batch.sample_columns["acc"].tolist() == [1, 0]
    assert batch.sample_columns["min_global_steps"].tolist() == [3, 4]
    assert "left_out" not in batch.meta


def test_scores_of_turns_alone_are_a_column_of_rounds() -> None:
    batch = load({**small_batch(), "turn_scores": [[0.5, 1.0], []]})

    assert round_frame(batch)["turn_score"].fillna(-1).tolist() == [0.5, 1.0, -1]


def test_scores_of_other_turns_than_the_records_are_named() -> None:
    fields = {**small_batch(), "round_records": RECORDS, "turn_scores": [[0.5], [1.0]]}
    batch = load(fields)

    assert "turn_score" not in batch.round_columns
    assert batch.meta["left_out"] == ["turn_scores"]


def test_a_column_of_the_same_name_stays() -> None:
    batch = load({**small_batch(), "extra_fields": [{"acc": 1}] * 2, "acc": [7, 8]})
    assert batch.sample_columns["acc"].tolist() == [7, 8]


def test_importance_weights_are_a_score_whose_diff_is_their_logarithm() -> None:
    weights = torch.tensor([[0.5, 2.0, 0.0, 1.0], [0.25, 0, 0, 0]])
    batch = load({**small_batch(), "rollout_is_weights": weights})

    diff = token_frame(batch, a="rollout_is")["diff"]
    assert diff.tolist() == pytest.approx([log(0.5), log(2), 0, log(0.25)])
    assert "left_out" not in batch.meta


def test_a_version_per_token_is_a_range_of_rounds_and_samples() -> None:
    # The first round was interrupted by an update; an observation has no version.
    versions = torch.tensor([[3, 4, -1, 4], [5, 0, 0, 0]])
    batch = load({**small_batch(), "versions": versions})

    frame = round_frame(batch)
    assert frame["min_weight_version"].tolist() == [3, 4, 5]
    assert frame["max_weight_version"].tolist() == [4, 4, 5]
    assert batch.sample_columns["min_weight_version"].tolist() == [3, 5]
    assert batch.sample_columns["max_weight_version"].tolist() == [4, 5]
    failed = [one.samples for one in check(batch).failed if "version" in one.name]
    assert failed == [(0,)]


def routes(*rows: list[list[int]]) -> torch.Tensor:
    """Two experts of one layer at each of 4 positions."""
    return torch.tensor(rows)[:, :, None, :]


def test_routes_of_the_sampler_are_named() -> None:
    experts = routes([[1, 2]] * 4, [[3, 4]] * 4)
    batch = load({**small_batch(), "routed_experts": experts})

    assert batch.meta["routed_experts"].startswith("`routed_experts` are in the file")
    assert batch.meta["left_out"] == ["routed_experts"]


def test_routes_of_both_engines_are_compared() -> None:
    ours = routes([[1, 2], [1, 2], [9, 9], [1, 2]], [[3, 4]] * 4)
    # Order is no difference; of three generated tokens one differs.
    theirs = routes([[2, 1], [1, 5], [8, 8], [1, 2]], [[4, 3]] * 4)
    batch = load(
        {**small_batch(), "routed_experts": ours, "rollout_routed_experts": theirs}
    )

    assert batch.sample_columns["same_experts"].tolist() == pytest.approx([2 / 3, 1])
    assert "left_out" not in batch.meta

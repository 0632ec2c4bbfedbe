"""Rewards and advantages of rounds and of samples, as files have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.loaders import load

# Sample 0 has two rounds, at 0-1 and 3-4, sample 1 one, sample 2 none.
MASK = [[1, 1, 0, 1, 1], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]


def loaded(scores: Any = None, **others: Any) -> rd.Batch:
    mask = torch.tensor(MASK)
    fields = {"token_level_scores": torch.tensor(scores)} if scores else {}
    return load(
        {
            "responses": torch.ones_like(mask),
            "response_mask": mask,
            "old_log_probs": -torch.ones(3, 5),
            "rollout_log_probs": -torch.ones(3, 5) * 2,
            **fields,
            **others,
        }
    )


def rewards_of(batch: rd.Batch) -> dict[str, list[Any]]:
    return {k: np.asarray(v).tolist() for k, v in batch.round_columns.items()}


def test_rewards_of_earlier_rounds_are_a_column_of_rounds() -> None:
    """An observation counts with the round before it; a prompt with the first."""
    batch = loaded(
        [[0.5, -1.0, 2.0, 0, 8.0], [4.0, 0, 1.0, 0, 0.25], [9.0, 0, 0, 0, 0]]
    )
    assert rewards_of(batch) == {
        "sample": [0, 0, 1],
        "round": [0, 1, 0],
        "round_reward": [1.5, 8.0, 5.25],
    }
    assert batch.rewards is not None
    assert batch.rewards.tolist() == [9.5, 5.25, 9.0]
    frame = rd.token_frame(batch, ["round_reward"])
    assert frame["round_reward"].tolist() == [1.5, 1.5, 8.0, 8.0, 5.25, 5.25]


def test_rewards_of_the_last_round_alone_are_those_of_samples() -> None:
    batch = loaded([[0, 0, 0, 0.5, 8.0], [4.0, 0, 1.0, 0, 0], [9.0, 0, 0, 0, 0]])
    assert batch.round_columns == {}


SCORES = [[0.5, 0, 0, 0, 8.0], [0, 0, 1.0, 0, 0], [0.0] * 5]


def test_a_reward_stands_beside_the_records_of_a_round() -> None:
    records = [[{"id": "x"}], [{"id": "y"}, {"id": "z"}], []]  # one lost, one too many
    batch = loaded(SCORES, round_records=records)
    columns = rewards_of(batch)
    assert columns["sample"] == [0, 1, 1, 0]
    assert columns["round"] == [0, 0, 1, 1]
    assert columns["id"] == ["x", "y", "z", None]
    assert columns["round_reward"] == pytest.approx([0.5, 1, np.nan, 8], nan_ok=True)


def test_a_reward_of_the_file_stays() -> None:
    records = [[{"round_reward": 3.0}] * 2, [{"round_reward": 4.0}], []]
    batch = loaded(SCORES, round_records=records)
    assert rewards_of(batch)["round_reward"] == [3.0, 3.0, 4.0]


@pytest.mark.parametrize("name", ["advantages", "advantage"])
def test_an_advantage_per_sample_is_that_of_its_tokens(name: str) -> None:
    batch = loaded(**{name: torch.tensor([0.5, -2.0, 7.0])})
    assert batch.advantages is not None
    assert batch.advantages.tolist() == [
        *(0.5, 0.5, 0.0, 0.5, 0.5),
        *(0.0, -2.0, -2.0, 0.0, 0.0),
        *[0.0] * 5,
    ]
    assert name not in batch.sample_columns
    assert "left_out" not in batch.meta
    frame = rd.round_frame(batch)
    assert frame["round_advantage"].tolist() == [0.5, 0.5, -2.0]


def test_one_per_token_is_read_under_both_names() -> None:
    values = torch.arange(15.0).reshape(3, 5)
    batch = loaded(advantage=values)
    assert batch.advantages is not None
    assert batch.advantages.tolist() == values.flatten().tolist()


def test_unknown_advantages_stay_a_column() -> None:
    batch = loaded(advantages=[0.5, None, 7.0])
    assert batch.advantages is None
    assert batch.sample_columns["advantages"].tolist() == [0.5, None, 7.0]


def test_they_survive_a_file(tmp_path: Path) -> None:
    batch = loaded(SCORES, advantages=torch.tensor([0.5, -2.0, 7.0]))
    path = tmp_path / "step.parquet"
    rd.save(batch, path)
    again = load(path)
    assert rewards_of(again) == rewards_of(batch)
    assert again.advantages is not None
    assert batch.advantages is not None
    assert again.advantages.tolist() == batch.advantages.tolist()

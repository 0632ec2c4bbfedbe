"""slime's train files of all ranks, and miles' of a rank each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rounddiag.loaders import load
from tests.loaders.slime_writer import (
    Columns,
    pixels,
    shards,
    trained_samples,
    write_rank,
    write_train_file,
)


def test_raw_rewards_of_other_rollouts_are_left_out(tmp_path: Path) -> None:
    parts = [part | {"raw_reward": [1.0]} for part in shards()]
    batch = load(write_train_file(tmp_path, trained_samples(), parts))

    assert batch.rewards.tolist() == [0.5, -0.5]  # normalised, for want of others
    assert batch.meta["left_out"] == ["raw_reward", "returns"]


def test_a_reward_of_none_is_not_a_number(tmp_path: Path) -> None:
    first, second = trained_samples()
    samples = [first | {"rewards": 1}, second | {"rewards": None}]
    batch = load(write_train_file(tmp_path, samples))

    assert np.array_equal(batch.rewards.numpy(), [1, np.nan], equal_nan=True)


def test_the_entries_of_a_dictionary_are_columns(tmp_path: Path) -> None:
    first, second = trained_samples()
    samples = [first | {"metadata": {str(n): n for n in range(40)}}, second]
    columns = load(write_train_file(tmp_path, samples)).sample_columns

    assert [columns[f"metadata.{n}"].tolist() for n in (0, 39)] == [
        [0, None],
        [39, None],
    ]


def lists(part: Columns) -> Columns:
    """Return columns of lists in place of tensors."""
    return {
        name: [row.tolist() for row in rows]
        if isinstance(rows, list) and isinstance(rows[0], torch.Tensor)
        else rows
        for name, rows in part.items()
    }


@pytest.mark.parametrize("as_stored", [dict, lists])
def test_the_columns_of_a_rank_are_read_alike(as_stored: type, tmp_path: Path) -> None:
    whole = load(write_train_file(tmp_path, trained_samples(), shards()))
    batch = load(write_rank(tmp_path, as_stored(shards()[1]), rank=5))

    for name, values in whole[0].per_token.items():
        assert torch.equal(batch.per_token[name].to(values.dtype), values), name
    assert torch.equal(batch.scores["ref"], whole[0].scores["ref"])
    assert batch.sample_columns["rank"].tolist() == [5]
    assert batch.sample_columns["micro_batch"].tolist() == [0]
    assert batch.sample_columns["normalized_reward"].tolist() == [0.5]
    assert batch.rewards.tolist() == [1.0]
    assert batch.meta["left_out"] == ["returns"]


def test_a_column_of_lengths_may_be_a_tensor(tmp_path: Path) -> None:
    part = shards()[1] | {"response_lengths": torch.tensor([3])}

    assert load(write_rank(tmp_path, part)).require_ids().tolist() == [4, 5, 6]


def test_a_column_of_none_is_not_there(tmp_path: Path) -> None:
    batch = load(write_rank(tmp_path, shards()[1] | {"entropy": None}))

    assert batch.entropy is None
    assert batch.meta["left_out"] == ["returns"]


def test_the_ranks_in_a_folder_are_one_batch(tmp_path: Path) -> None:
    for rank, part in enumerate([*shards(), shards()[0]]):
        write_rank(tmp_path, part, rank)

    batch = load(tmp_path)

    assert batch.sample_ids == ("12", "10")
    assert batch.sample_columns["rank"].tolist() == [0, 1]
    assert batch.meta["num_dropped_rows"] == 1


def test_screenshots_are_rebuilt_and_placed(tmp_path: Path) -> None:
    first, second = trained_samples()
    samples = [first | {"multimodal_train_inputs": pixels((1, 2, 4))}, second]
    batch = load(write_train_file(tmp_path, samples))

    assert [len(row) for row in batch.images] == [1, 0]
    assert batch.images[0][0].size == (56, 28)
    assert (batch.images[0][0].position, batch.images[0][0].round) == (-3, 0)

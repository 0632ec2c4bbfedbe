"""miles' files of one rank each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from tests.loaders.slime_writer import rollouts, shards, write_rank, write_rollouts

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, rank: int, shard: int, cp_size: object = 1) -> Path:
    """Write a rank's file; miles drops `partition` when a rank takes its samples."""
    part = shards()[shard]
    del part["partition"]
    return write_rank(folder, part, rank, cp_rank=0, cp_size=cp_size, qkv_format="thd")


def test_a_rank_that_holds_whole_samples_is_a_batch(tmp_path: Path) -> None:
    write_rollouts(tmp_path, rollouts())
    batch = load(write(tmp_path, 4, shard=1))

    assert batch.require_ids().tolist() == [4, 5, 6]
    assert batch.rounds.start.tolist() == [0, 2]
    assert batch.step == 3
    assert batch.sample_ids == ("10",)
    assert batch.sample_columns["rank"].tolist() == [4]
    assert batch.group_ids == ("0",)


def test_copies_of_tensor_parallel_ranks_are_dropped(tmp_path: Path) -> None:
    for rank, shard in enumerate([0, 0, 1, 1]):
        write(tmp_path, rank, shard)

    batch = load(tmp_path)

    assert batch.sample_ids == ("12", "10")
    assert batch.sample_columns["rank"].tolist() == [0, 2]
    assert batch.meta["num_dropped_rows"] == 2


def test_rewards_are_the_environments_by_the_place_among_the_rollouts(
    tmp_path: Path,
) -> None:
    write_rollouts(tmp_path, rollouts())
    batches = [load(write(tmp_path, rank, shard=rank)) for rank in (0, 1)]

    # `raw_reward` of the three rollouts is 1, 0, 0; rank 0 has the third.
    rewards = [batch.rewards for batch in batches]
    assert [row.tolist() for row in rewards if row is not None] == [[0.0], [1.0]]
    normalized = [b.sample_columns["normalized_reward"].tolist() for b in batches]
    assert normalized == [[-0.5], [0.5]]
    assert "raw_reward" not in batches[0].meta["left_out"]


def test_rewards_of_unknown_samples_stay_as_they_were_trained_on(
    tmp_path: Path,
) -> None:
    batch = load(write(tmp_path, 0, shard=1))

    assert batch.rewards is not None
    assert batch.rewards.tolist() == [0.5]
    assert batch.meta["left_out"] == ["raw_reward", "returns"]


def test_a_rank_alone_has_groups_by_prompt_raw_rewards_and_versions(
    tmp_path: Path,
) -> None:
    part = shards()[1] | {"weight_versions": [["9", "10"]], "raw_reward": [1.0]}
    del part["partition"]
    path = write_rank(tmp_path, part, cp_rank=0, cp_size=1)

    batch = load(path)

    assert batch.rewards is not None
    assert batch.rewards.tolist() == [1.0]
    assert batch.meta["group_source"] == "samples whose prompts have the same tokens"
    assert batch.round_columns["weight_version"].tolist() == ["9", "10"]
    assert batch.sample_columns["max_weight_version"].tolist() == ["10"]


@pytest.mark.parametrize("cp_size", [2, None])
def test_slices_of_samples_are_an_error(cp_size: object, tmp_path: Path) -> None:
    path = write(tmp_path, 0, shard=0, cp_size=cp_size)
    message = (
        f"{path}: expected `cp_size` 1, samples that one rank holds whole; found"
        f" {cp_size}: each rank has slices of its samples. Dump a step with"
        " `--context-parallel-size 1`; miles' own dashboard joins slices."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        load(path)

"""miles' files of one rank each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

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

    assert batch.rewards.tolist() == [0.5]
    assert batch.meta["left_out"] == ["raw_reward", "returns"]


def test_a_rank_alone_has_groups_by_prompt_raw_rewards_and_versions(
    tmp_path: Path,
) -> None:
    part = shards()[1] | {"weight_versions": [["9", "10"]], "raw_reward": [1.0]}
    del part["partition"]
    path = write_rank(tmp_path, part, cp_rank=0, cp_size=1)

    batch = load(path)

    assert batch.rewards.tolist() == [1.0]
    assert batch.meta["group_source"] == "samples whose prompts have the same tokens"
    assert batch.round_columns["weight_version"].tolist() == ["9", "10"]
    assert batch.sample_columns["max_weight_version"].tolist() == ["10"]


def long_sample() -> dict[str, Any]:
    """A prompt of 3 tokens and a response of 10."""
    numbers = torch.arange(10)
    return {
        "sample_indices": [7],
        "tokens": [torch.arange(13)],
        "total_lengths": [13],
        "response_lengths": [10],
        "loss_masks": [torch.ones(10, dtype=torch.int32)],
        "rollout_log_probs": [-1 - numbers / 8],
        "log_probs": [-2 - numbers / 8],
    }


@pytest.mark.parametrize(
    ("size", "found"),
    [
        (2, "slices .* of one of 2 context-parallel ranks.*size 1`: such a file opens"),
        (None, "found `cp_size` None"),
    ],
)
def test_slices_of_samples_are_refused(
    size: object, found: str, tmp_path: Path
) -> None:
    with pytest.raises(LoadError, match=found):
        load(write(tmp_path, 0, shard=1, cp_size=size))


def test_without_the_trainer_s_forward_pass(tmp_path: Path) -> None:
    part = long_sample()
    del part["log_probs"]
    batch = load(write_rank(tmp_path, part, 0, cp_rank=0, cp_size=1))
    assert batch.old_log_probs is None
    assert batch.log_probs("rollout")[:2].tolist() == [-1.0, -1.125]


DASHBOARD: dict[str, list[Any]] = {
    "sample_index": [7, 8],
    "response_length": [2, 3],
    "total_length": [4, 4],
    "tokens": [[1, 2, 3, 4], [5, 6, 7, 8]],
    "loss_mask": [[1, 1], [1, 0, 1]],
    "rollout_log_probs": [[-0.5, -1.0], [-0.25, 0.0, -2.0]],
}


def write_dashboard(folder: Path, rows: dict[str, list[Any]]) -> Path:
    (folder / "dashboard_columns").mkdir()
    path = folder / "dashboard_columns" / "rollout_12.parquet"
    pq.write_table(pa.table(rows), path)
    return path


def test_columns_of_the_dashboard(tmp_path: Path) -> None:
    write_dashboard(tmp_path, DASHBOARD)
    batch = load(tmp_path)
    assert batch.step == 12
    assert batch.sample_ids == ("7", "8")
    assert batch.require_ids().tolist() == [3, 4, 6, 7, 8]
    assert batch.response_mask.tolist() == [1, 1, 1, 0, 1]
    assert batch.log_probs("rollout").tolist() == [-0.5, -1.0, -0.25, 0.0, -2.0]
    assert batch.old_log_probs is None


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("tokens", [1, 2], "a list of numbers per sample; found a column of another"),
        ("loss_mask", ["a", "b"], "a list of numbers per sample; found a column of an"),
        (
            "response_length",
            [[2], [3]],
            "one number per sample; found a column of anot",
        ),
        ("rollout_log_probs", None, "a list of numbers per sample; found no such col"),
    ],
)
def test_a_column_of_the_dashboard_of_another_kind(
    name: str, values: list[Any] | None, expected: str, tmp_path: Path
) -> None:
    rows = {**DASHBOARD, name: values}
    path = write_dashboard(
        tmp_path, {key: row for key, row in rows.items() if row is not None}
    )
    with pytest.raises(
        LoadError, match=f"rollout_12.parquet: `{name}`: exp.*{expected}"
    ):
        load(path)


def test_the_sampler_read_its_prompt_before_the_processor_expanded_it(
    tmp_path: Path,
) -> None:
    first, *others = rollouts()
    unexpanded = {"rollout_prompt_ids": [1, 9, 3], "weight_versions": ["9", "10"]}
    write_rollouts(tmp_path, [first | unexpanded, *others])
    batch = load(write(tmp_path, 4, shard=1))

    assert batch.context(0, 1).ids.tolist() == [1, 9, 9, 3, 4, 5]
    assert batch.context(0, 0, engine="rollout").ids.tolist() == [1, 9, 3]
    assert batch.context(0, 1, engine="rollout").ids.tolist() == [1, 9, 3, 4, 5]
    assert batch.round_columns["weight_version"].tolist() == ["9", "10"]
    write_rollouts(tmp_path, rollouts())
    assert load(write(tmp_path, 4, shard=1)).context_engines == ("old",)

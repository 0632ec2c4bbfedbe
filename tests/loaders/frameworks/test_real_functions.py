"""Files that the functions of five frameworks wrote: see tests/data/README.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from rounddiag.core import token_frame
from rounddiag.loaders import load

DATA = Path(__file__).parents[2] / "data"


def test_slimes_payload_of_two_ranks() -> None:
    batch = load(DATA / "slime-v2")

    assert batch.step == 3
    assert batch.sample_ids == ("10", "12")
    assert batch.group_ids == ("0", "1")
    assert batch.require_ids().tolist() == [4, 5, 6, 7, 8]
    assert batch.rounds.start.tolist() == [0, 2, 3]
    assert batch.log_probs("old").tolist() == [-0.25, -9.0, -1.5, -0.5, -0.5]
    assert batch.rewards.tolist() == [1.0, 0.0]
    assert batch.sample_columns["normalized_reward"].tolist() == [0.5, -0.5]
    assert batch.sample_columns["data_parallel_rank"].tolist() == [1, 0]
    shot = batch.images[0][0]
    assert (shot.position, shot.round, shot.size) == (-3, 0, (2, 1))
    assert batch.meta["left_out"] == ["metadata.steps", "returns"]


def test_vimes_payload_is_slimes() -> None:
    batch, same = load(DATA / "vime-5d429bd"), load(DATA / "slime-v2")

    assert batch.step == 3
    assert batch.sample_ids == ("10", "12")
    assert batch.require_ids().tolist() == [4, 5, 6, 7, 8]
    assert batch.log_probs("rollout").tolist() == [-0.5, 0.0, -1.0, -0.5, -0.25]
    assert batch.log_probs("old").tolist() == same.log_probs("old").tolist()
    assert batch.rewards.tolist() == [1.0, 0.0]
    assert batch.sample_columns["rollout_mask_sums"].tolist() == [2.0, 2.0]


def test_miles_files_of_two_ranks() -> None:
    batch = load(DATA / "miles")

    # Rank 0 took the rollouts 0 and 2, rank 1 the rollout 1.
    assert batch.step == 3
    assert batch.sample_ids == ("10", "12", "11")
    assert batch.require_ids().tolist() == [4, 5, 6, 7, 8, 4]
    assert batch.log_probs("old").tolist() == [-0.25, -9.0, -1.5, -0.5, -0.5, -2.5]
    assert batch.rewards.tolist() == [1.0, 0.0, 0.0]
    assert batch.sample_columns["normalized_reward"].tolist() == [0.5, 0.0, -0.5]
    assert batch.round_columns["weight_version"].tolist() == ["9"] * 4
    assert batch.group_ids == ("0", "1", "0")
    assert batch.images is not None
    assert [len(shots) for shots in batch.images] == [1, 0, 0]


def test_nemo_rls_lines_of_a_step() -> None:
    batch = load(DATA / "nemo-rl-0275e75")

    assert batch.step == 7
    assert batch.require_ids().tolist() == [10, 11, 4, 5, 12, 13, 14, 15, 16]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 2, 2]
    # -t / 8 and -t / 4 at position t of the sequence.
    assert batch.log_probs("rollout").tolist()[:2] == [-0.375, -0.5]
    assert batch.log_probs("old").tolist()[:2] == [-0.75, -1.0]
    assert batch.loss_mask.tolist() == [1, 1, 0, 0, 1, 1, 1, 0, 0]
    assert batch.rewards.tolist() == [1.0, 0.0, 1.0]


def test_prime_rls_export_of_packed_sequences() -> None:
    batch = load(DATA / "prime-rl-d2f82fa" / "step_7")

    assert batch.step == 7
    assert batch.require_ids().tolist() == [10, 11, 3, 12, 13]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 1]
    assert batch.log_probs("old").tolist() == [-0.5, -0.75, -1.0, -1.25, -2.0]
    assert batch.log_probs("rollout").tolist() == [-0.25, -0.375, -0.0, -0.625, -1.0]
    assert batch.rewards.tolist() == [1.0, 0.0]
    assert batch.group_ids is not None
    assert len({*batch.group_ids}) == 1
    assert batch.sample_columns["training_mode"].tolist() == ["rl", "rl"]


def test_prime_rls_traces_beside_episodes_of_verifiers() -> None:
    """Packed by zstd, in independent frames and in several files."""
    batch = load(DATA / "prime-rl-65a1858")
    assert (len(batch), batch.num_tokens) == (4, 30)
    assert batch.sample_columns["trace_id"].tolist() == [
        *("trace0", "trace1", "trace1", "trace2")
    ]
    assert batch.sample_columns["max_weight_version"].tolist() == [3, 4, 4, 3]
    frame = token_frame(batch, ["rollout_log_prob", "old_log_prob", "loss_mask"])
    # The second branch of a trace has the tokens that the first one lacks.
    assert frame.groupby(["sample", "round"]).size().tolist() == [4, 5, 4, 5, 3, 4, 5]
    numbers = frame[["rollout_log_prob", "old_log_prob"]].to_numpy()[[0, 29]]
    expected = [-0.2409, -0.2281, -0.0627, -0.0725]
    assert numbers.ravel().tolist() == pytest.approx(expected)
    assert frame.index[frame["loss_mask"] == 0].tolist() == [3, 17, 22]
    assert batch.images is not None
    rounds = [[shot.round for shot in shots] for shots in batch.images]
    assert rounds == [[0, 1], [0, 1], [0], [0, 1]]
    assert {shot.size for shots in batch.images for shot in shots} == {(32, 24)}


def test_verifiers_episodes_with_the_trainers_log_probs() -> None:
    batch = load(DATA / "verifiers-0.4.0")
    means = token_frame(batch).groupby(["sample", "round"])["diff"].mean()
    assert means.tolist() == pytest.approx([0.003514, 0.002987, 0.006085], abs=1e-6)
    assert batch.images is not None
    assert [[shot.round for shot in shots] for shots in batch.images] == [[0, 1], [0]]

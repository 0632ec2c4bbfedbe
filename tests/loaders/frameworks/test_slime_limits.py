"""slime's files that name a few things in many places: quick, and within limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from rounddiag.loaders import load
from tests.loaders.frameworks.test_slime_errors import DAMAGED, refused
from tests.loaders.refusal import an_end
from tests.loaders.slime_writer import (
    rollouts,
    saved,
    shards,
    trained_samples,
    write_rollouts,
    write_train_file,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_a_sample_that_is_named_again_and_again_is_an_error(tmp_path: Path) -> None:
    samples = trained_samples()[:1] * 40_000

    assert refused(write_train_file(tmp_path, samples)) == (
        "expected a whole file of its kind; found 40000 samples with 680000 values."
        f" {DAMAGED}"
    )


def test_numbers_that_are_named_again_and_again_are_an_error(tmp_path: Path) -> None:
    samples = [trained_samples()[0] | {"tokens": torch.zeros(100_000)}] * 1000

    assert refused(write_train_file(tmp_path, samples)) == (
        "expected a whole file of its kind; found samples that repeat each other's"
        f" numbers. {DAMAGED}"
    )


def test_more_columns_than_any_step_has_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("rounddiag.loaders.frameworks.slime.samples.MAX_CELLS", 4)
    batch = load(write_train_file(tmp_path, trained_samples()))

    assert list(batch.sample_columns) == ["data_parallel_rank", "rollout_position"]
    assert "truncated" in batch.meta["left_out"]


def test_micro_batches_that_repeat_samples_are_read_once(tmp_path: Path) -> None:
    part = shards()[0] | {"micro_batch_indices": [[0] * 1000] * 1000}
    batch = load(write_train_file(tmp_path, trained_samples(), [part] * 1000))

    assert batch.sample_columns["micro_batch"].tolist() == [None, 0]


def test_a_dictionary_of_many_entries_is_left_out(tmp_path: Path) -> None:
    first, second = trained_samples()
    samples = [first | {"metadata": {str(n): n for n in range(33)}}, second]
    batch = load(write_train_file(tmp_path, samples))

    assert "metadata" in batch.meta["left_out"]


def shared_parts() -> list[object]:
    """Return a list of a few objects that takes for ever to go through."""
    shared: list[object] = [1]
    for _ in range(60):
        shared = [shared, shared]
    return shared


def test_values_that_share_parts_are_left_out(tmp_path: Path) -> None:
    first, second = trained_samples()
    samples = [first | {"notes": shared_parts()}, second]
    batch = load(write_train_file(tmp_path, samples))

    assert "notes" in batch.meta["left_out"]


@pytest.mark.parametrize(
    "payload",
    [
        {"format_version": shared_parts(), "rollout_id": 3, "samples": []},
        {"rollout_id": shared_parts(), "samples": []},
        {"rollout_id": 3, "rank": 0, "rollout_data": {}, "cp_size": shared_parts()},
        {"rollout_id": shared_parts(), "rank": shared_parts(), "rollout_data": {}},
    ],
    ids=["version", "rollout", "slices", "rank"],
)
def test_facts_that_share_parts_are_an_error(
    payload: dict[str, object], tmp_path: Path
) -> None:
    with an_end():
        assert len(refused(saved(tmp_path / "3.pt", payload))) < 400


def test_rollouts_that_are_named_again_and_again_are_not_used(tmp_path: Path) -> None:
    write_rollouts(tmp_path, rollouts()[:1] * 40_000)
    batch = load(write_train_file(tmp_path, trained_samples()))

    assert "found 40000 samples with" in str(batch.meta["rollout_file"])

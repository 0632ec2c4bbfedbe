"""slime's files that name a few things in many places: read once, and quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from rounddiag.loaders import load
from tests.loaders.frameworks.test_slime_errors import refused
from tests.loaders.refusal import an_end
from tests.loaders.slime_writer import (
    shards,
    trained_samples,
    write_payload,
    write_train_file,
)


def test_micro_batches_that_repeat_samples_are_read_once(tmp_path: Path) -> None:
    part = shards()[0] | {"micro_batch_indices": [[0] * 1000] * 1000}
    batch = load(write_train_file(tmp_path, trained_samples(), [part] * 1000))

    assert batch.sample_columns["micro_batch"].tolist() == [None, 0]


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
        {
            "rollout_id": shared_parts(),
            "rank": shared_parts(),
            "cp_size": 1,
            "rollout_data": {},
        },
    ],
    ids=["version", "rollout", "slices", "rank"],
)
def test_facts_that_share_parts_are_an_error(
    payload: dict[str, object], tmp_path: Path
) -> None:
    with an_end():
        assert len(refused(write_payload(tmp_path / "3.pt", payload))) < 400

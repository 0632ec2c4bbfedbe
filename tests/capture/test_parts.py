"""Several batches of one step, as in verl's `separate_async` trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rounddiag.capture import Recorder, round_record
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import DataProto, inputs, rows
from tests.loaders.facts import has


def part(number: int, num_samples: int, width: int) -> DataProto:
    """A batch whose first sample is one position shorter; diff is `number` nats."""
    responses = torch.arange(num_samples * width).reshape(num_samples, width)
    attention = torch.ones(num_samples, 2 + width, dtype=torch.long)
    attention[0, 0] = attention[0, -1] = 0
    mask = attention[:, 2:].clone()
    uids = [f"g{number}_{i}" for i in range(num_samples)]
    records = [[round_record([1], [2], engine=number)] for _ in uids]
    return DataProto(
        batch={
            "prompts": torch.tensor([[3, 4]] * num_samples),
            "responses": responses + 100 * number,
            "response_mask": mask,
            "attention_mask": attention,
            "rollout_log_probs": torch.full(mask.shape, -1.0),
            "old_log_probs": torch.full(mask.shape, -1.0 - number),
        },
        non_tensor_batch={
            "uid": rows(*uids),
            "round_records": rows(*records),
            "multi_modal_inputs": rows(*[inputs(0.5)] * num_samples),
        },
        meta_info={"temperature": 0.7},
    )


def test_all_batches_of_a_step_are_parts_of_its_file(tmp_path: Path) -> None:
    parts = [part(0, 2, 3), part(1, 3, 5), part(2, 2, 4)]
    with Recorder(tmp_path, images=0) as recorder:
        for data in parts:
            recorder.step(40, data)
    assert recorder.errors == 0
    assert [path.name for path in tmp_path.iterdir()] == ["step_40.parquet"]
    expected = {
        "step": 40,
        "sample.step_part": [0, 0, 1, 1, 1, 2, 2],
        "lengths": [2, 3, 4, 5, 5, 3, 4],
        "response_ids": [
            *(0, 1, 3, 4, 5),
            *(100, 101, 102, 103, *range(105, 115)),
            *(200, 201, 202, 204, 205, 206, 207),
        ],
        "rollout_log_probs": [-1.0] * 26,
        "old_log_probs": [-1.0] * 5 + [-2.0] * 14 + [-3.0] * 7,
        "prompt_ids": [4, 3, 4, 4, *[3, 4] * 2, 4, 3, 4],
        "group_ids": ["g0_0", "g0_1", "g1_0", "g1_1", "g1_2", "g2_0", "g2_1"],
        "round.engine": [0, 0, 1, 1, 1, 2, 2],
        "meta.sampling": {"temperature": 0.7},
    }
    has(load_parquet(tmp_path / "step_40.parquet"), expected)


def test_a_part_that_is_recorded_again_is_replaced_in_its_place(tmp_path: Path) -> None:
    first, second = part(1, 2, 3), part(2, 2, 3)
    with Recorder(tmp_path, images=0) as recorder:
        recorder.step(0, first)
        recorder.step(0, second)
        first.batch["old_log_probs"] = torch.full((2, 3), -1.5)
        recorder.step(0, first)
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert batch.log_probs("old").tolist() == [-1.5] * 5 + [-3.0] * 5


def test_each_part_is_finished_by_its_own_samples(tmp_path: Path) -> None:
    parts = [part(0, 2, 3), part(1, 3, 5)]
    with Recorder(tmp_path, images=0) as recorder:
        for data in parts:
            recorder.step(0, data)
        recorder.close()
        for data in parts:
            recorder.step(0, data)
        for number, data in enumerate(parts):
            advantages = torch.full(data.batch["responses"].shape, float(number))
            recorder.finish(0, {**data.batch, "advantages": advantages})
    assert recorder.errors == 0
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert batch.advantages.tolist() == [0.0] * 5 + [1.0] * 14
    assert "step_part" in batch.sample_columns


def test_a_field_that_only_one_part_has_is_left_out_and_named(tmp_path: Path) -> None:
    first, second = part(0, 2, 3), part(1, 3, 5)
    second.batch["entropys"] = torch.zeros(3, 5)
    second.non_tensor_batch["tool"] = rows("a", "b", "c")
    with Recorder(tmp_path, images=0) as recorder:
        recorder.step(0, first)
        recorder.step(0, second)
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert batch.entropy is None
    assert batch.meta["capture"]["left_out"] == ["entropys"]
    assert batch.sample_columns["tool"].tolist() == [None, None, "a", "b", "c"]


@pytest.mark.parametrize("options", [{"images": 4}, {"images": 4, "max_samples": 6}])
def test_the_samples_picked_of_all_parts_have_screenshots(
    options: dict[str, Any], tmp_path: Path
) -> None:
    with Recorder(tmp_path, **options) as recorder:
        for number in range(4):
            recorder.step(0, part(number, 5, 10))
    assert recorder.errors == 0
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert sum(1 for row in batch.images if row) == 4
    why = batch.sample_columns["picked"].tolist()
    assert (why.count("random"), why.count("worst")) == (2, 2)
    assert len(batch) == options.get("max_samples", 20)
    assert batch.meta["capture"]["num_samples"] == 20
    parts = batch.sample_columns["step_part"].tolist()
    worst = [part for part, reason in zip(parts, why, strict=True) if reason == "worst"]
    # The mean |diff| of part 3 is 3 nats. Few samples have one of each part.
    assert worst == ([2, 3] if "max_samples" in options else [3, 3])


def test_another_step_begins_with_one_part(tmp_path: Path) -> None:
    with Recorder(tmp_path, every=1, images=0) as recorder:
        recorder.step(0, part(0, 2, 3))
        recorder.step(1, part(1, 3, 5))
    batch = load_parquet(tmp_path / "step_1.parquet")
    assert batch.num_samples == 3
    assert "step_part" not in batch.sample_columns

"""Files with some samples of a batch: their numbers are of these samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag.capture import Recorder
from tests.batches import random_log_probs

NOTE = "totals of the step are missing: all numbers are of the saved samples"


def record(folder: Path, num: int, **options: Any) -> Path:
    """Record samples of which a third is far off; return the file."""
    old, rollout = random_log_probs((num, 60), 1), random_log_probs((num, 60), 2)
    old[::3] -= 20
    fields = {
        "responses": torch.ones(num, 60, dtype=torch.int64),
        "response_mask": torch.ones(num, 60),
        "rollout_log_probs": rollout,
        "old_log_probs": old,
        "uid": [f"g{sample % 12}" for sample in range(num)],
    }
    with Recorder(folder, **options) as recorder:
        recorder.step(0, fields)
    assert recorder.errors == 0
    return folder / "step_0.parquet"


def test_a_part_says_what_it_is_of_and_counts_its_own_samples(tmp_path: Path) -> None:
    part = rd.load(record(tmp_path, 40, max_samples=6))
    # Drawn by the seed of the Recorder and the step, whatever their log-probs are.
    drawn = np.random.default_rng((0, 0)).permutation(40)[:6]
    assert part.sample_columns["original_sample"].tolist() == sorted(drawn.tolist())
    capture = {"num_samples": 40, "num_saved": 6, "note": NOTE}
    assert part.meta["capture"] == capture
    assert rd.round_summary(part)["num_samples"].tolist() == [6]
    steps = rd.open_run(tmp_path).step_summary()
    assert steps["num_samples"].tolist() == [6]
    assert NOTE in steps["facts"].item()


@pytest.mark.parametrize("rounds", [[{"round": 0, "num_samples": 40}], None, "x"])
def test_totals_of_former_versions_are_left_out(tmp_path: Path, rounds: object) -> None:
    part = rd.load(record(tmp_path, 40, max_samples=6))
    written = {"num_samples": 40, "num_saved": 6, "note": "", "rounds": rounds}
    old = replace(part, meta={"capture": {**written, "saved_rounds": [1.5]}})
    rd.save(old, tmp_path / "step_0.parquet")
    again = rd.load(tmp_path / "step_0.parquet")
    assert again.meta["capture"] == part.meta["capture"]
    pd.testing.assert_frame_equal(rd.round_summary(again), rd.round_summary(part))


def test_a_batch_that_is_small_enough_is_kept_whole(tmp_path: Path) -> None:
    batch = rd.load(record(tmp_path, 2, max_samples=2))
    assert batch.meta["capture"] == {"num_samples": 2}
    assert batch.sample_columns["picked"].tolist() == ["random", "random"]
    assert "original_sample" not in batch.sample_columns

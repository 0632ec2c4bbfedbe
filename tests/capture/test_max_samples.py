"""Files with some samples of a batch still summarise all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import metrics, round_summary
from rounddiag.batch import Batch
from rounddiag.capture import Recorder
from rounddiag.loaders.parquet import load_parquet
from tests.batches import padded, random_log_probs


def whole_batch(num_groups: int) -> Batch:
    """40 samples in up to 3 rounds, of which one has a diff that is far larger."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(40, 60, generator=generator) < 0.9
    mask[:, [20, 41]] = False
    mask[20:, 41:] = False
    old, rollout = random_log_probs((40, 60), 1), random_log_probs((40, 60), 2)
    old[17] -= 20
    old[3, 0] = torch.nan
    groups = tuple(f"g{sample % num_groups}" for sample in range(40))
    whole = padded(mask.int(), old, rollout)
    return replace(whole, group_ids=groups if num_groups > 1 else None)


def part_of(batch: Batch, folder: Path) -> Batch:
    fields = {
        "responses": batch.require_ids().reshape(40, -1),
        "response_mask": batch.response_mask.reshape(40, -1),
        "rollout_log_probs": batch.log_probs("rollout").reshape(40, -1),
        "old_log_probs": batch.log_probs("old").reshape(40, -1),
    }
    groups = {} if batch.group_ids is None else {"uid": list(batch.group_ids)}
    with Recorder(folder, max_samples=6) as recorder:
        recorder.step(0, {**fields, **groups})
    assert recorder.errors == 0
    return load_parquet(folder / "step_0.parquet")


@pytest.mark.parametrize("num_groups", [1, 12])
def test_the_summary_is_that_of_the_whole_batch(
    tmp_path: Path, num_groups: int
) -> None:
    whole = whole_batch(num_groups)
    part = part_of(whole, tmp_path)
    assert len(part) == 6
    expected = round_summary(whole)
    assert expected["ci_low"].notna().any()
    pd.testing.assert_frame_equal(round_summary(part), expected, rtol=1e-6)


def test_rows_say_where_they_stood(tmp_path: Path) -> None:
    part = part_of(whole_batch(12), tmp_path)
    # Drawn by the seed of the Recorder and the step, whatever their log-probs are.
    drawn = np.random.default_rng((0, 0)).permutation(40)[:6]
    assert part.sample_columns["original_sample"].tolist() == sorted(drawn.tolist())
    assert part.meta["capture"]["num_samples"] == 40
    assert part.meta["capture"]["num_saved"] == 6
    assert part.meta["capture"]["note"] == (
        "`metrics` and `reconcile` see the saved samples only"
    )
    assert metrics(part) == metrics(replace(part, meta={}))


def test_a_batch_that_is_small_enough_is_kept_whole(tmp_path: Path) -> None:
    zeros = torch.zeros(2, 3)
    fields = {"responses": zeros.long(), "response_mask": torch.ones(2, 3)}
    with Recorder(tmp_path, max_samples=2) as recorder:
        recorder.step(0, {**fields, "rollout_log_probs": zeros, "old_log_probs": zeros})
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert batch.meta["capture"] == {"num_samples": 2}
    assert batch.sample_columns["picked"].tolist() == ["random", "random"]
    assert "original_sample" not in batch.sample_columns


@pytest.mark.parametrize(
    "rounds", [None, 3, [3], [{}], [{"cluster_tokens": "x", "cluster_abs_diff": []}]]
)
def test_statistics_that_are_broken_are_not_used(
    tmp_path: Path, rounds: object
) -> None:
    part = part_of(whole_batch(12), tmp_path)
    facts = {**part.meta["capture"], "rounds": rounds}
    broken = replace(part, meta={"capture": facts})
    assert round_summary(broken).equals(round_summary(replace(part, meta={})))

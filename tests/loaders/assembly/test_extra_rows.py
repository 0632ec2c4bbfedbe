"""Rows that fill a batch and copies of rows are left out and counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rounddiag import token_frame
from rounddiag.batch.html import describe_sources
from rounddiag.loaders import load, save
from tests.batches import padded


def fields(**others: Any) -> dict[str, Any]:
    """Four rows of 3 tokens; row 2 is row 0 again, row 3 is another."""
    old = [[-9.0, -8.0, -7.0], [-1.0, -1.0, -1.0], [-9.0, -8.0, -7.0], [-2.0] * 3]
    return {
        "responses": torch.tensor([[1, 2, 3], [4, 5, 6], [1, 2, 3], [7, 8, 9]]),
        "response_mask": torch.ones(4, 3),
        "rollout_log_probs": torch.tensor(old) - 0.5,
        "old_log_probs": torch.tensor(old),
        **others,
    }


def test_a_copied_row_is_left_out_and_counted() -> None:
    batch = load(fields(task=["a", "b", "a", "d"]))

    assert batch.num_samples == 3
    assert batch.sample_columns["task"].tolist() == ["a", "b", "d"]
    assert batch.sample_columns["original_sample"].tolist() == [0, 1, 3]
    assert batch.meta["num_dropped_copies"] == 1
    assert describe_sources(batch.meta)["number of dropped copies"] == "1"
    assert token_frame(batch)["diff"].tolist() == [0.5] * 9


def test_padding_rows_of_rllm_are_left_out_and_counted() -> None:
    flags = np.array([False, False, True, True])
    batch = load(fields(is_pad_step=flags, uid=["g", "h", "g", "g"]))

    assert batch.group_ids == ("g", "h")
    assert batch.meta["num_dropped_rows"] == 2
    assert "num_dropped_copies" not in batch.meta


def test_the_recorders_own_files_lose_padding_and_keep_other_rows(
    tmp_path: Path,
) -> None:
    flags = np.array([False, False, True, True])
    for columns, count in (({"is_pad_step": flags}, 2), ({}, 4)):
        old = torch.tensor([[-9.0, -8.0, -7.0]] * 4)
        batch = padded(torch.ones(4, 3), old, old - 0.5, sample_columns=columns)
        batch = replace(batch, response_ids=torch.tensor([1, 2, 3] * 4))
        save(batch, tmp_path / "a.parquet")
        assert len(load(tmp_path / "a.parquet")) == count


def test_rows_that_are_equal_by_chance_stay() -> None:
    likely = torch.full((4, 3), -0.1)
    batch = load(fields(rollout_log_probs=likely, old_log_probs=likely - 0.1))

    assert batch.num_samples == 4

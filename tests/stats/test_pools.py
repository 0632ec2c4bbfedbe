"""Rows of samples, and of pools of them."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import round_frame
from rounddiag.stats import heatmap_rows as pools
from rounddiag.stats.heatmap_rows import HeatmapRows, order_rows, summarize_samples
from tests.batches import hand_batch

NAN = math.nan
FRAME = pd.DataFrame(
    {
        "sample": [0, 0, 2, 3, 4],
        "round": [0, 1, 0, 0, 0],
        "num_tokens": [1, 5, 3, 1, 1],
        "mean_abs_diff": [0.5, 0.25, 1.0, NAN, 4.0],
        "mean_diff": [-0.5, 0.25, 0.25, NAN, -4.0],
        "max_abs_diff": [0.5, 1.0, 2.0, NAN, 4.0],
    }
)


@pytest.fixture
def two_rows(monkeypatch: pytest.MonkeyPatch) -> HeatmapRows:
    """Five samples in pools of three and two."""
    monkeypatch.setattr(pools, "_MAX_ROWS", 2)
    return HeatmapRows(samples=summarize_samples(None, FRAME, 5))


def test_every_sample_has_a_row_with_what_is_known_of_it() -> None:
    batch = hand_batch(
        sample_ids=("a", "b", "c"),
        group_ids=("g", "g", "h"),
        rewards=torch.tensor([0.0, 1.0, 0.5]),
    )
    summary = summarize_samples(batch, round_frame(batch), 3)
    assert summary["sample_id"].tolist() == ["a", "b", "c"]
    assert summary["group_id"].tolist() == ["g", "g", "h"]
    assert summary["reward"].tolist() == [0, 1, 0.5]
    assert summary["num_rounds"].tolist() == [2, 2, 1]
    assert summary["mean_abs_diff"].tolist() == pytest.approx([1.75 / 3, 2.75 / 4, 1])


def test_a_frame_tells_of_its_samples_itself() -> None:
    summary = summarize_samples(None, FRAME.assign(reward=[1.0, 1.0, 0.0, 0.5, 0.0]), 5)
    assert summary["reward"].tolist() == pytest.approx([1, NAN, 0, 0.5, 0], nan_ok=True)
    assert "group_id" not in summary
    assert summary["num_tokens"].tolist() == [6, 0, 3, 1, 1]


def test_a_sample_alone_in_its_row_shows_its_metric() -> None:
    rows = HeatmapRows(samples=order_rows(summarize_samples(None, FRAME, 5), "worst"))
    cells = rows.rounds(FRAME, "mean_abs_diff")
    assert cells["row"].tolist() == [2, 2, 1, 4, 0]
    assert cells["shown"].tolist() == pytest.approx(
        FRAME["mean_abs_diff"].tolist(), nan_ok=True
    )
    assert rows.means("num_rounds").tolist() == [1, 1, 2, 0, 1]


def test_a_pool_shows_its_largest_value(two_rows: HeatmapRows) -> None:
    assert (two_rows.pool, two_rows.num) == (3, 2)
    largest = two_rows.rounds(FRAME, "mean_diff")
    assert list(zip(largest["row"], largest["round"], strict=True)) == [
        (0, 0),
        (0, 1),
        (1, 0),
    ]
    assert largest["shown"].tolist() == [-0.5, 0.25, -4]
    assert largest["num_rows"].tolist() == [2, 1, 2]
    assert largest["num_tokens"].tolist() == [4, 5, 2]
    means = [(-0.5 + 0.75) / 4, 0.25, -4]  # over tokens
    assert largest["mean_diff"].tolist() == pytest.approx(means)


def test_a_pool_has_the_mean_of_its_samples(two_rows: HeatmapRows) -> None:
    assert two_rows.means("num_rounds").tolist() == [1, 1]
    rewards = two_rows.samples.assign(reward=[1.0, NAN, 0.0, NAN, NAN])
    means = HeatmapRows(samples=rewards).means("reward")
    np.testing.assert_array_equal(means, [0.5, NAN])

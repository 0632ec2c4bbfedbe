"""The share of staleness in the mismatch, and that of the engine."""

from __future__ import annotations

from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.stats import describe_staleness, staleness_share


def batch_of(diff: Any, versions: Any, **more: Any) -> rd.Batch:
    diff = torch.as_tensor(diff, dtype=torch.float64)
    mask = torch.ones(diff.shape, dtype=torch.int64)
    rollout = torch.full(diff.shape, -9.0, dtype=torch.float64)
    return rd.Batch.from_padded(
        response_ids=mask,
        response_mask=mask,
        rollout_log_probs=rollout,
        old_log_probs=rollout + diff,
        token_columns={"weight_versions": torch.as_tensor(versions)},
        **more,
    )


def test_by_hand() -> None:
    # Floor (1 + 3) / 2 = 2; lag 1: 2 x (10 - 2); lag 2: below the floor, so 0.
    diff = [[1.0, -3.0, 8.0], [12.0, -1.0, 100.0]]
    staleness = staleness_share(batch_of(diff, [[7, 7, 6], [6, 5, 9]], step=7))
    assert staleness is not None
    assert staleness.share == pytest.approx(16 / 21)
    assert (staleness.floor, staleness.num_tokens) == (2.0, 3)
    assert np.isnan(staleness.low)  # of two samples
    assert "76 %" in str(staleness)
    assert "24 % is the engine gap" in str(staleness)


def test_the_sample_batch_is_split_as_martingale_splits_it() -> None:
    staleness = staleness_share(rd.load("sample_data/stale.parquet"))
    assert staleness is not None
    assert (round(staleness.share, 2), round(1 - staleness.share, 2)) == (0.93, 0.07)
    assert staleness.low < staleness.share < staleness.high


@pytest.mark.parametrize(
    ("versions", "meta", "text"),
    [
        ([[7, 7]], {"trainer_version": 7}, ""),
        (
            [[6, 5]],
            {"trainer_version": 7},
            "2 of 2 tokens are of older weights, 1 to 2 versions behind the trainer's;"
            " none has lag 0, so the engine gap alone is not known.",
        ),
        (
            [[8, 5]],
            {"trainer_version": 7},
            "1 of 2 tokens are of older weights, 2 versions behind the trainer's; none"
            " has lag 0, so the engine gap alone is not known.",
        ),
        (
            [[6, 5]],
            {},
            "The tokens are of weight version 5 to 6, and the trainer's version is not"
            " in the file: staleness is not known.",
        ),
    ],
)
def test_nothing_is_split_without_a_lag_of_0(
    versions: Any, meta: dict[str, int], text: str
) -> None:
    batch = batch_of([[0.1, 0.2]], versions, meta=meta)
    assert staleness_share(batch) is None
    assert describe_staleness(batch) == text
    assert describe_staleness(rd.load("sample_data/healthy.parquet")) == ""


@given(st.integers(0, 2**32 - 1))
def test_against_a_loop_over_tokens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    diff = rng.normal(size=(8, 6)) * 0.1
    diff[rng.random((8, 6)) < 0.1] = np.nan
    versions = rng.integers(3, 8, (8, 6))
    versions[0, :2], diff[0, :2] = (7, 5), (0.1, 0.2)
    staleness = staleness_share(batch_of(diff, versions, step=7))
    by_lag: dict[int, list[float]] = {}
    for value, version in zip(diff.ravel(), versions.ravel(), strict=True):
        if np.isfinite(value):
            lag = 7 - int(version)
            by_lag.setdefault(lag, []).append(float(abs(value)))
    floor = mean(by_lag.pop(0))
    excess = sum(len(v) * max(mean(v) - floor, 0.0) for v in by_lag.values())
    assert staleness is not None
    expected = excess / sum(map(sum, by_lag.values()))
    assert staleness.share == pytest.approx(expected, abs=1e-6)  # diffs are float32
    assert 0 <= staleness.low <= staleness.high <= 1

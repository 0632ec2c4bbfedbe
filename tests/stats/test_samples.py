"""Correlations of samples, and the spread of groups."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag.errors import FrameError
from rounddiag.stats import correlations, groups
from tests.batches import hand_batch, padded


def frame(num: int = 40, **columns: object) -> pd.DataFrame:
    values = np.linspace(0.1, 0.5, num)
    return pd.DataFrame({"sample": range(num), "mean_abs_diff": values, **columns})


def test_what_rises_with_the_mismatch_has_correlation_one() -> None:
    found = correlations(frame(reward=-np.arange(40.0), num_tokens=np.arange(40) ** 3))

    assert found["column"].tolist() == ["reward", "num_tokens"]
    assert found["num_samples"].tolist() == [40, 40]
    assert found["pearson"][0] == pytest.approx(-1)
    assert found["spearman"].tolist() == pytest.approx([-1, 1])
    expected = np.corrcoef(np.linspace(0.1, 0.5, 40), np.arange(40) ** 3)[0, 1]
    assert found["pearson"][1] == pytest.approx(expected)
    assert found["pearson_low"][1] <= expected <= found["pearson_high"][1]


def test_what_has_nothing_to_do_with_it_has_an_interval_around_zero() -> None:
    noise = np.random.default_rng(1).standard_normal(40)
    found = correlations(frame(reward=noise))

    assert found["pearson_low"][0] < 0 < found["pearson_high"][0]
    assert found["spearman_low"][0] < 0 < found["spearman_high"][0]


def test_few_groups_have_no_interval() -> None:
    reward = np.random.default_rng(1).standard_normal(40)
    found = correlations(frame(reward=reward, group_id=["a", "b", "c", "d"] * 10))

    assert np.isfinite(found["pearson"][0])
    assert np.isnan(found[["pearson_low", "spearman_high"]].to_numpy()).all()


def test_groups_make_the_interval_wider() -> None:
    # Every group's samples are one sample twelve times: 20 facts, not 240.
    alone = frame(20, reward=np.random.default_rng(2).standard_normal(20))
    repeated = pd.concat([alone] * 12, ignore_index=True)
    grouped = repeated.assign(group_id=[str(i) for i in repeated["sample"]])

    def width(samples: pd.DataFrame) -> float:
        row = correlations(samples).iloc[0]
        return float(row["pearson_high"] - row["pearson_low"])

    assert width(grouped) > 2 * width(repeated)
    assert width(grouped) == pytest.approx(width(alone), rel=0.2)


def test_a_column_that_does_not_vary_or_is_text_is_left_out() -> None:
    found = correlations(frame(reward=1.0, sample_id=["a"] * 40))

    assert found["column"].tolist() == []


def test_samples_without_a_value_are_left_out() -> None:
    reward = np.where(np.arange(40) < 10, np.nan, np.arange(40.0))
    found = correlations(frame(reward=reward))

    assert found["num_samples"].tolist() == [30]


def test_a_group_has_its_mean_and_its_spread() -> None:
    batch = hand_batch(group_ids=("b", "a", "b"))
    found = groups(batch)

    assert found["group_id"].tolist() == ["b", "a"]
    assert found["num_samples"].tolist() == [2, 1]
    assert found["num_tokens"].tolist() == [4, 4]
    # |diff| of sample 0: 0.5, 0.25, 1; of 2: 1; of 1: 0, 0.25, 0.5, 2.
    assert found["mean_abs_diff"].tolist() == pytest.approx([2.75 / 4, 2.75 / 4])
    assert found["lowest"].tolist() == pytest.approx([1.75 / 3, 2.75 / 4])
    assert found["highest"].tolist() == pytest.approx([1.0, 2.75 / 4])
    assert found["spread"].tolist() == pytest.approx(
        [(1 - 1.75 / 3) / np.sqrt(2), np.nan], nan_ok=True
    )


def test_an_empty_batch_has_no_group_and_no_correlation() -> None:
    empty = torch.zeros(0, 3)
    batch = padded(empty, empty, empty, group_ids=())

    assert len(groups(batch)) == 0
    assert len(correlations(batch)) == 0


def test_a_batch_without_groups_is_an_error() -> None:
    with pytest.raises(FrameError, match="without \\['group_id'\\]"):
        groups(hand_batch())

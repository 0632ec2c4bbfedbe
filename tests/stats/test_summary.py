from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import round_summary, schema
from rounddiag.stats import worst_round
from rounddiag.stats.intervals import ratio_interval
from tests.batches import hand_batch, padded


def test_one_row_per_round_over_all_samples(device: torch.device) -> None:
    summary = round_summary(hand_batch(device))
    assert summary["round"].tolist() == [0, 1]
    assert summary["num_samples"].tolist() == [3, 2]
    assert summary["num_tokens"].tolist() == [6, 2]
    assert summary["num_nonfinite"].tolist() == [0, 0]
    assert summary["mean_abs_diff"].tolist() == [pytest.approx(2.5 / 6), 1.5]
    assert summary["mean_diff"].tolist() == [pytest.approx(-1 / 6), 1.5]
    assert summary["p50"].tolist() == [0.375, 1.5]
    assert summary["p95"].tolist() == pytest.approx([0.875, 1.95])
    assert summary["max"].tolist() == [1.0, 2.0]
    old, rollout = np.exp([-1.0, -1.0]), np.exp([-2.0, -3.0])
    assert summary["prob_diff"][1] == pytest.approx((old - rollout).mean())
    assert summary[["ci_low", "ci_high"]].isna().all(axis=None)


def test_columns_and_dtypes_are_those_of_the_schema() -> None:
    dtypes = {name: str(t) for name, t in round_summary(hand_batch()).dtypes.items()}
    assert dtypes == {column.name: column.dtype for column in schema.SUMMARY.columns}


def test_what_is_not_finite_is_left_out_and_counted() -> None:
    old = torch.tensor([[np.nan, -1.0, 0.0, np.inf]])
    batch = padded([[1, 1, 0, 1]], old, torch.zeros(1, 4))
    summary = round_summary(batch)
    assert summary["num_tokens"].tolist() == [2, 1]
    assert summary["num_nonfinite"].tolist() == [1, 1]
    assert summary["mean_abs_diff"].tolist()[0] == 1.0
    assert summary["p99"].tolist()[0] == 1.0
    means = ["mean_abs_diff", "mean_diff", "k3", "p50", "max", "prob_diff"]
    assert summary.loc[1, means].isna().all()


def test_a_mean_that_is_too_large_for_a_float_stays_infinite() -> None:
    summary = round_summary(
        padded([[1, 1]], torch.tensor([[0.0, 800.0]]), [[0.0, 0.0]])
    )
    assert summary["k3"].tolist() == [np.inf]
    assert summary["mean_abs_diff"].tolist() == [400.0]


@pytest.mark.parametrize(
    ("worst", "columns"),
    [
        pytest.param(
            1,
            {"round": [3, 1, 2, 0], "mean": [0.5, 0.5, np.nan, np.inf]},
            id="the lowest of equal rounds",
        ),
        pytest.param(
            1,
            {"num_samples": [64, 5, 4], "mean": [0.1, 0.2, 0.9]},
            id="not a round of few samples",
        ),
        pytest.param(
            2,
            {"num_samples": [4, 3, 1], "mean": [0.1, 0.2, 0.9]},
            id="few samples among their like",
        ),
        pytest.param(
            0, {"is_few": [False, True], "mean": [0.1, 0.9]}, id="not of few groups"
        ),
        pytest.param(1, {"mean": [0.25, -0.5]}, id="a mean below zero"),
    ],
)
def test_the_worst_round_is(worst: int, columns: dict[str, list[float]]) -> None:
    num = len(columns["mean"])
    frame = pd.DataFrame({"round": range(num), "num_samples": [20] * num, **columns})
    row = worst_round(frame)
    assert row is not None
    assert row["round"] == worst
    assert worst_round(frame[:0]) is None


def test_the_interval_of_equal_clusters_is_that_of_their_mean() -> None:
    totals = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    low, high = ratio_interval(totals, np.ones(10))
    # mean 5.5, standard error 3.0277 / sqrt(10), t with 9 degrees 2.26216
    reach = 2.2621572 * 3.0276504 / 10**0.5 / 5.5
    assert (low, high) == pytest.approx((5.5 * np.exp(-reach), 5.5 * np.exp(reach)))


@pytest.mark.parametrize(("num_samples", "is_known"), [(4, False), (5, True)])
def test_five_samples_have_an_interval(num_samples: int, *, is_known: bool) -> None:
    old = [[-1.0 - number / 8] for number in range(num_samples)]
    batch = padded([[1]] * num_samples, old, [[-0.5]] * num_samples)
    ends = round_summary(batch)[["ci_low", "ci_high"]].to_numpy()
    assert np.isfinite(ends).tolist() == [[is_known] * 2]


def test_tokens_of_one_sample_are_no_evidence_of_their_own() -> None:
    totals = np.array([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    once = ratio_interval(totals, np.ones(10))
    repeated = ratio_interval(totals * 1000, np.full(10, 1000))
    assert once == pytest.approx(repeated)

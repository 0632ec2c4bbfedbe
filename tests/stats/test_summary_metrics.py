"""The summary of every metric and weight, against plain loops in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import Batch, round_frame, round_summary, token_frame
from rounddiag.schema import METRICS
from rounddiag.stats.intervals import Resampling
from rounddiag.vision import RawScreenshot
from tests import oracle
from tests.batches import hand_batch, masks, padded, random_log_probs
from tests.oracle import OF_DIFF, OWN_WEIGHT

KEYS = ("sample", "round")
OF_ONE = (
    *("surprise", "entropy", "round_length", "round_seconds", "round_reward"),
    "round_change",
)
# One of each way in which a value is computed.
OF_PAIR = ("abs_diff", "prob_diff", "after_first_unequal")
BY_SAMPLE = ("abs_diff", "prob_diff", "chi2", "surprise", "round_reward")


def random_batch(seed: int) -> Batch:
    """17 samples of up to 6 rounds; some diffs are not finite, and some are 0."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.rand(17, 40, generator=generator) < 0.9).int()
    old, rollout = (random_log_probs((17, 40), seed + part) for part in (1, 2))
    old[torch.rand(17, 40, generator=generator) < 0.05] = torch.nan
    same = torch.rand(17, 40, generator=generator) < 0.1
    entropy = torch.rand(17, 40, generator=generator)
    entropy[entropy < 0.05] = torch.nan
    batch = padded(mask, torch.where(same, rollout, old), rollout, entropy=entropy)
    rounds = round_frame(batch)[["sample", "round"]].to_numpy().T
    sampled = np.where(rounds[0] == 3, np.nan, rounds[0] + rounds[1] / 8)
    columns = {"sampling_seconds": sampled, "turn_score": rounds[1] - 2.0}
    keys = dict(zip(("sample", "round"), rounds, strict=True))
    images = tuple(
        tuple(grey_picture(sample, index) for index in range(num))
        for sample, num in enumerate(np.bincount(rounds[0], minlength=17))
    )
    return replace(batch, round_columns={**keys, **columns}, images=images)


def grey_picture(sample: int, index: int) -> RawScreenshot:
    """A picture of one cell; that of the next round differs after odd numbers."""
    pixels = bytes([(sample + index) // 2]) * 64
    return RawScreenshot(
        mode="L", width=8, height=8, data=lambda: pixels, round=int(index)
    )


def quantile(values: list[float], probability: float) -> float:
    place = probability * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    ordered = sorted(values)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def by_loops(batch: Batch, metric: str, weight: str) -> list[oracle.Row]:
    """One row a round: token by token, in float64."""
    samples: dict[int, dict[int, list[float]]] = {}
    unequal: set[int] = set()
    if metric in OF_ONE:
        return rows_by_loops(values_of_one(batch, metric), weight)
    tokens = token_frame(batch, ["rollout_log_prob"])
    columns = ["sample", "round", "diff", "rollout_log_prob"]
    for sample, index, diff, rollout in tokens[columns].itertuples(index=False):
        values = samples.setdefault(index, {}).setdefault(sample, [])
        if math.isfinite(diff):
            if diff != 0:
                unequal.add(sample)
            if metric == "after_first_unequal":
                values.append(float(sample in unequal))
                continue
            gap = abs(math.exp(rollout + diff) - math.exp(rollout))
            values.append(gap if metric == "prob_diff" else OF_DIFF[metric](diff))
    return rows_by_loops(samples, weight)


def values_of_one(batch: Batch, metric: str) -> dict[int, dict[int, list[float]]]:
    """What needs no pair, by round and sample: tokens, or what their round has."""
    frame = token_frame(batch, ["rollout_log_prob", "entropy"])
    seconds, scores = (
        dict(
            zip(
                zip(*(batch.round_columns[k].tolist() for k in KEYS), strict=True),
                batch.round_columns[name].tolist(),
                strict=True,
            )
        )
        for name in ("sampling_seconds", "turn_score")
    )
    samples: dict[int, dict[int, list[float]]] = {}
    sizes = frame.groupby(["sample", "round"]).size()
    names = ["sample", "round", "rollout_log_prob", "entropy"]
    for sample, index, rollout, entropy in frame[names].itertuples(index=False):
        value = {
            "surprise": -rollout,
            "entropy": entropy,
            "round_length": float(sizes[sample, index]),
            "round_seconds": seconds[sample, index],
            "round_reward": scores[sample, index],
            "round_change": (sample + index) % 2
            if (sample, index + 1) in sizes
            else math.nan,
        }[metric]
        values = samples.setdefault(index, {}).setdefault(sample, [])
        if math.isfinite(value):
            values.append(value)
    return samples


def rows_by_loops(
    samples: dict[int, dict[int, list[float]]], weight: str
) -> list[oracle.Row]:
    rows = []
    for index in sorted(samples):
        of_samples = [values for values in samples[index].values() if values]
        values = [value for part in of_samples for value in part]
        means = [oracle.mean(part) for part in of_samples]
        row = {
            "round": index,
            "num_samples": len(samples[index]),
            "mean": oracle.mean(means if weight == "sample" else values),
            "share_zero": oracle.mean([float(value == 0) for value in values]),
            "max": max(values, default=math.nan),
        }
        for percent in (50, 90, 95, 99):
            known = quantile(values, percent / 100) if values else math.nan
            row[f"p{percent}"] = known
        rows.append(row)
    return rows


def check_alike(summary: pd.DataFrame, wanted: pd.DataFrame, metric: str) -> None:
    for name in wanted:
        loose = {"rel": 2e-6, "abs": 1e-7 if metric == "prob_diff" else 1e-12}
        left, right = summary[name].tolist(), wanted[name].tolist()
        assert left == pytest.approx(right, nan_ok=True, **loose), name


@pytest.mark.parametrize(
    ("metric", "weight"),
    [
        *((metric, "token") for metric in sorted(METRICS)),
        *((metric, "sample") for metric in BY_SAMPLE),
    ],
)
def test_every_metric_equals_plain_loops(metric: str, weight: str) -> None:
    batch = random_batch(0)
    summary = round_summary(batch, metric=metric, weight=weight)
    wanted = pd.DataFrame(by_loops(batch, metric, OWN_WEIGHT.get(metric, weight)))
    assert len(summary) == len(wanted) > 3
    check_alike(summary, wanted, metric)


@pytest.mark.parametrize("metric", [*OF_PAIR, *OF_ONE])
def test_a_token_frame_gives_what_its_batch_gives(metric: str) -> None:
    batch = random_batch(3)
    frame = token_frame(batch, ["prob_diff", "equal_so_far", *OF_ONE])
    left, right = (round_summary(data, metric=metric) for data in (frame, batch))
    pd.testing.assert_frame_equal(left, right)


@pytest.mark.parametrize(
    ("metric", "column"),
    [*((metric, "rollout_log_prob") for metric in OF_PAIR), ("prob_diff", "prob_diff")],
)
def test_a_frame_of_another_pair_equals_plain_loops(metric: str, column: str) -> None:
    batch = random_batch(4)
    current = random_log_probs((17, 40), 9)
    both = replace(batch, scores={"current": current.flatten()})
    frame = token_frame(both, [column, "equal_so_far"], a="current", b="old")
    summary = round_summary(frame, metric=metric, a="current", b="old")
    mask, old = batch.response_mask.reshape(17, 40), batch.log_probs("old")
    alone = padded(mask, current, old.reshape(17, 40))
    wanted = pd.DataFrame(by_loops(alone, metric, OWN_WEIGHT.get(metric, "token")))
    check_alike(summary, wanted, metric)
    assert summary.attrs["pair"] == ["current", "old"]


def test_the_hand_batch_by_token_and_by_sample() -> None:
    batch = hand_batch()
    # Round 0: 0.5, -0.25 | 0, 0.25, -0.5 | -1. Round 1: 1 | 2.
    by_token = round_summary(batch, metric="diff")
    assert by_token["mean"].tolist() == [pytest.approx(-1 / 6), 1.5]
    assert by_token["share_zero"].tolist() == [pytest.approx(1 / 6), 0]
    assert by_token["p90"].tolist() == [0.375, pytest.approx(1.9)]
    by_sample = round_summary(batch, metric="diff", weight="sample")
    wanted = (0.125 - 0.25 / 3 - 1) / 3
    assert by_sample["mean"].tolist() == [pytest.approx(wanted), 1.5]
    assert by_sample["p50"].tolist() == by_token["p50"].tolist()
    outside = round_summary(batch, metric="beyond")
    assert outside["mean"].tolist() == [pytest.approx(1 / 6), 1]


def one_round(num: int, **others: object) -> tuple[Batch, np.ndarray[Any, Any]]:
    """Samples of 1 to 3 tokens, and the sum of diff over each."""
    old, rollout = random_log_probs((num, 3), 1), random_log_probs((num, 3), 2)
    mask = (torch.arange(3) <= torch.arange(num)[:, None] % 3).double()
    batch = padded(mask, old, rollout, **others)
    return batch, ((old - rollout) * mask).double().sum(1).numpy()


def test_a_mean_that_can_be_negative_has_a_linear_interval() -> None:
    batch, sums = one_round(30)
    counts = np.arange(30) % 3 + 1
    row = round_summary(batch, metric="k1").iloc[0]
    wanted = Resampling(30).ratio_interval(-sums, counts, is_signed=True)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(wanted)
    mirrored = round_summary(batch, metric="diff").iloc[0]
    ends = (-mirrored["ci_high"], -mirrored["ci_low"])
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(ends)


def test_the_interval_of_sample_means_counts_each_sample_once() -> None:
    batch, sums = one_round(30)
    row = round_summary(batch, metric="diff", weight="sample").iloc[0]
    means = sums / (np.arange(30) % 3 + 1)
    wanted = Resampling(30).ratio_interval(means, np.ones(30), is_signed=True)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(wanted)


def test_shares_end_at_one() -> None:
    old = torch.where(torch.arange(12)[:, None] < 11, -1.0, -2.0)
    batch = padded(torch.ones(12, 1), old, torch.full((12, 1), -2.0))
    row = round_summary(batch, metric="beyond").iloc[0]
    assert row["mean"] == pytest.approx(11 / 12)
    assert row["ci_low"] < 11 / 12
    assert row["ci_high"] == 1


def test_values_too_large_for_a_float_leave_no_interval_and_no_warning() -> None:
    old = torch.full((12, 2), 0.0)
    rollout = torch.full((12, 2), -800.0)
    rollout[:6] = -500
    row = round_summary(padded(torch.ones(12, 2), old, rollout), metric="k3").iloc[0]
    assert row[["mean", "p90", "max"]].tolist() == [np.inf] * 3
    assert row[["ci_low", "ci_high"]].isna().all()
    assert row["num_nonfinite"] == 0


@given(masks(), st.randoms(use_true_random=False))
def test_the_order_of_samples_changes_nothing(
    mask: list[list[int]], random: Random
) -> None:
    width = len(mask[0]) if mask else 0
    old, rollout = (
        random_log_probs((len(mask), width), 1),
        torch.zeros(len(mask), width),
    )
    order = list(range(len(mask)))
    random.shuffle(order)
    shape = (len(mask), width)
    marks = torch.tensor(mask).reshape(shape)
    for weight in ("token", "sample"):
        left, right = (
            round_summary(padded(*fields), metric="k2", weight=weight)
            for fields in (
                (marks, old, rollout),
                (marks[order], old[order], rollout[order]),
            )
        )
        # Draws are of numbered clusters: their intervals depend on the order.
        drawn = ["ci_low", "ci_high"]
        left, right = left.drop(columns=drawn), right.drop(columns=drawn)
        pd.testing.assert_frame_equal(left, right, rtol=1e-12)


@pytest.mark.parametrize("metric", OF_PAIR)
def test_a_sample_without_a_finite_diff_counts_for_nothing(metric: str) -> None:
    batch, _ = one_round(12)
    old = batch.log_probs("old").reshape(12, 3).clone()
    old[[3, 7]] = torch.nan
    mask = batch.response_mask.reshape(12, 3)
    rollout = batch.log_probs("rollout").reshape(12, 3)
    others = [sample for sample in range(12) if sample not in (3, 7)]
    for weight in ("token", "sample"):
        summary = round_summary(
            padded(mask, old, rollout), metric=metric, weight=weight
        )
        part = padded(mask[others], old[others], rollout[others])
        wanted = round_summary(part, metric=metric, weight=weight)
        columns = ["mean", "p50", "max", "share_zero"]
        pd.testing.assert_frame_equal(summary[columns], wanted[columns])
        assert summary["num_nonfinite"].tolist() == [3]


def test_rows_of_a_frame_can_stand_in_any_order() -> None:
    tokens = token_frame(random_batch(8), ["prob_diff"])
    tokens["group_id"] = tokens["sample"] % 7
    shuffled = tokens.sample(frac=1, random_state=2)
    for weight in ("token", "sample"):
        left, right = (
            round_summary(data, metric="k2", weight=weight)
            for data in (shuffled, tokens)
        )
        pd.testing.assert_frame_equal(left, right)

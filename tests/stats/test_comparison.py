"""Differences of batches, per round."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rounddiag import Batch, round_summary, token_frame
from rounddiag.errors import FrameError
from rounddiag.stats import compare_batches
from tests.batches import hand_batch, masks, padded

NAN = math.nan
# |diff| of sample 0: 0.375 and 1 (rounds 0 and 1); of 1: 0.25, 2; of 2: 1.
IDS = ("a", "b", "c")


def one_token_each(size: list[float], **others: Any) -> Batch:
    """Samples of one round of one token, whose |diff| is given."""
    rollout = -torch.tensor(size)[:, None]
    ones = torch.ones(len(size), 1, dtype=torch.int64)
    return padded(ones, torch.zeros(len(size), 1), rollout, **others)


def test_batches_are_paired_by_id_in_whatever_order() -> None:
    before = one_token_each([1.0, 2.0, 4.0], sample_ids=IDS)
    after = one_token_each([8.0, 1.0, 3.0], sample_ids=("c", "a", "b"))
    compared = compare_batches({"before": before, "after": after}).iloc[0]
    assert compared["round"] == 0
    assert (compared["num_pairs"], compared["num_samples"]) == (3, 3)
    assert compared["difference"] == pytest.approx(5 / 3)


def test_samples_of_one_batch_only_are_left_out_of_pairs() -> None:
    before = one_token_each([1.0, 2.0, 4.0], sample_ids=IDS)
    after = one_token_each([9.0, 1.5, 2.0], sample_ids=("z", "a", "b"))
    compared = compare_batches([before, after]).iloc[0]
    assert (compared["num_pairs"], compared["num_samples"]) == (2, 2)
    assert compared["difference"] == pytest.approx(0.25)


def test_a_pair_counts_in_rounds_that_both_have() -> None:
    shorter = padded(
        [[1, 0, 1], [1, 0, 0]],
        [[-1.0, 0, -1], [-1, 0, 0]],
        [[-2.0, 0, -4], [-3, 0, 0]],
        sample_ids=("a", "b"),
    )
    longer = padded(
        [[1, 0, 1], [1, 0, 1]],
        [[-1.0, 0, -1], [-1, 0, -1]],
        [[-2.0, 0, -6], [-3, 0, -9]],
        sample_ids=("a", "b"),
    )
    compared = compare_batches([shorter, longer])
    assert compared["difference"].tolist() == [0, 2]
    assert compared["num_baseline_samples"].tolist() == [2, 1]
    assert compared["num_samples"].tolist() == [2, 1]


@pytest.mark.parametrize(
    "ids",
    [None, ("x", "y", "z"), ("x", "y", "c"), ("a", "a", "x")],
    ids=["none", "others", "one of three", "a name of two samples"],
)
def test_batches_that_share_too_few_ids_are_not_paired(ids: Any) -> None:
    before = one_token_each([1.0, 2.0, 6.0], sample_ids=IDS)
    after = one_token_each([1.0, 2.0, 9.0], sample_ids=ids)
    compared = compare_batches([before, after]).iloc[0]
    assert compared["num_pairs"] == 0
    assert compared["difference"] == 1
    assert (compared["num_baseline_samples"], compared["num_samples"]) == (3, 3)


def test_pairs_cancel_what_their_samples_have_in_common() -> None:
    generator = np.random.default_rng(0)
    common = np.exp(2 * generator.standard_normal(32))
    ids = tuple(map(str, range(32)))
    larger = common + 0.5 + 0.01 * generator.standard_normal(32)
    before = one_token_each(common.tolist(), sample_ids=ids)
    after = one_token_each(larger.tolist(), sample_ids=ids)
    paired = compare_batches([before, after]).iloc[0]
    apart = compare_batches([before, one_token_each(larger.tolist())]).iloc[0]
    assert paired["ci_high"] - paired["ci_low"] < 0.02
    assert paired["ci_low"] < 0.5 < paired["ci_high"]
    assert apart["ci_high"] - apart["ci_low"] > 1


def test_groups_are_drawn_as_one() -> None:
    sizes = np.arange(1.0, 13)
    ids, groups = tuple(map(str, range(12))), tuple(str(i // 3) for i in range(12))
    before = one_token_each(sizes.tolist(), sample_ids=ids, group_ids=groups)
    after = one_token_each((2 * sizes).tolist(), sample_ids=ids)
    alone = one_token_each(sizes.tolist(), sample_ids=ids)
    # Four groups do not say how far groups differ.
    assert math.isnan(compare_batches([before, after])["ci_low"][0])
    assert compare_batches([alone, after])["ci_low"][0] > 0


def test_a_round_of_one_batch_alone_has_no_difference() -> None:
    compared = compare_batches([hand_batch(), hand_batch()[2:]])
    assert compared["round"].tolist() == [0, 1]
    np.testing.assert_array_equal(compared["difference"].isna(), [False, True])
    assert compared["num_samples"].tolist() == [1, 0]
    assert compared["num_baseline_samples"].tolist() == [3, 2]


def test_what_is_not_finite_is_left_out() -> None:
    before = one_token_each([1.0, 2.0], sample_ids=("a", "b"))
    after = one_token_each([2.0, NAN], sample_ids=("a", "b"))
    compared = compare_batches([before, after]).iloc[0]
    assert (compared["difference"], compared["num_samples"]) == (1, 1)


def test_token_frames_are_compared_as_a_whole() -> None:
    batch = hand_batch(sample_ids=IDS)
    compared = compare_batches([token_frame(batch), token_frame(batch[:2])])
    assert compared["num_pairs"].tolist() == [0, 0]
    assert compared["difference"].tolist() == pytest.approx([1.5 / 5 - 2.5 / 6, 0])


def test_batches_without_tokens_have_no_rounds() -> None:
    empty = padded([[0]], [[0.0]], [[0.0]])
    assert len(compare_batches([empty, empty])) == 0
    assert compare_batches([empty, hand_batch()])["difference"].isna().all()


@given(masks())
def test_a_batch_does_not_differ_from_itself(mask: list[list[int]]) -> None:
    width = len(mask[0]) if mask else 0
    rows = torch.tensor(mask, dtype=torch.int64).reshape(len(mask), width)
    values = torch.arange(rows.numel(), dtype=torch.float32).reshape(rows.shape)
    ids = tuple(map(str, range(len(mask))))
    batch = padded(rows, -values, -2 * values, sample_ids=ids)
    compared = compare_batches([batch, batch])
    assert (compared["difference"].dropna() == 0).all()
    assert compared["ci_low"].isin([0, NAN]).all()


@settings(max_examples=20)
@given(st.permutations(range(12)))
def test_the_order_of_samples_does_not_matter(order: list[int]) -> None:
    def sized(samples: list[int], step: float) -> Batch:
        sizes = [size + step * size**2 for size in samples]
        return one_token_each(sizes, sample_ids=tuple(map(str, samples)))

    before, after = sized(list(range(12)), 0.0), sized(list(range(12)), 0.5)
    expected = compare_batches([before, after])
    compared = compare_batches([before, sized(order, 0.5)])
    pd.testing.assert_frame_equal(compared, expected)


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        ([], "[]"),
        ([hand_batch()] * 3, "['Batch', 'Batch', 'Batch']"),
        (hand_batch(), "['Batch']"),
        (5, "['int']"),
    ],
)
def test_anything_but_two_batches_is_an_error(batches: Any, found: str) -> None:
    message = (
        f"`batches`: expected two batches or token frames; found {found}."
        ' Pass a list, or a dictionary: `{"before": one, "after": other}`.'
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        compare_batches(batches)


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [
        # Of samples 0 and 1, less those of all three.
        ("diff", [0 - -1 / 6, 0]),
        ("k2", [0.3125 / 5 - 0.8125 / 6, 0]),
        ("train_rollout_logprob_abs_diff", [0.3125 - 1.625 / 3, 0]),
    ],
)
def test_another_metric_is_compared(metric: str, wanted: list[float]) -> None:
    compared = compare_batches([hand_batch(), hand_batch()[:2]], metric=metric)
    assert compared["difference"].tolist() == pytest.approx(wanted)


def test_differences_of_probabilities_are_those_of_the_summary() -> None:
    batches = [hand_batch(), hand_batch()[:2]]
    before, after = (round_summary(batch)["prob_diff"] for batch in batches)
    compared = compare_batches(batches, metric="prob_diff")
    assert compared["difference"].tolist() == pytest.approx((after - before).tolist())


def test_few_groups_are_marked_as_few() -> None:
    sizes = np.arange(1.0, 13).tolist()
    ids, groups = tuple(map(str, range(12))), tuple(str(i // 3) for i in range(12))
    alone = one_token_each(sizes, sample_ids=ids)
    grouped = one_token_each(sizes, sample_ids=ids, group_ids=groups)
    assert compare_batches([alone, alone])["is_few"].tolist() == [False]
    assert compare_batches([grouped, alone])["is_few"].tolist() == [True]
    assert compare_batches([alone, alone[:4]])["is_few"].tolist() == [True]
    few = [alone, one_token_each(sizes[:4])]
    assert compare_batches(few)["is_few"].tolist() == [True]

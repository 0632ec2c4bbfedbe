"""Rows of the round frame that become one."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from rounddiag import round_frame, sample_frame
from rounddiag.stats.cells import AGGREGATES, aggregate_rounds, extremes
from tests.batches import AWKWARD, padded, random_log_probs

NAN = math.nan
FRAME = pd.DataFrame(
    {
        "sample": [0, 0, 1, 2],
        "round": [0, 1, 0, 0],
        "num_tokens": [3, 2, 2, 4],
        "num_nonfinite": [1, 2, 0, 0],
        "mean_abs_diff": [1.0, NAN, 4.0, 2.5],
        "mean_diff": [-1.0, NAN, 4.0, -2.5],
        "max_abs_diff": [1.5, NAN, 6.0, 3.0],
    }
)


def test_counts_are_added_and_means_are_over_finite_tokens() -> None:
    combined = aggregate_rounds(FRAME, "round")
    assert combined["num_rows"].tolist() == [3, 1]
    assert combined["num_tokens"].tolist() == [9, 2]
    assert combined["mean_abs_diff"][0] == pytest.approx((2 * 1 + 2 * 4 + 4 * 2.5) / 8)
    assert combined["mean_diff"][0] == pytest.approx((-2 + 8 - 10) / 8)
    assert combined["max_abs_diff"][0] == 6


def test_rows_without_a_finite_value_have_no_mean() -> None:
    combined = aggregate_rounds(FRAME, "round")
    assert combined.loc[1, ["mean_abs_diff", "mean_diff", "max_abs_diff"]].isna().all()


def test_the_rounds_of_a_sample_combine_to_the_sample_frame() -> None:
    shape = len(AWKWARD), len(AWKWARD[0])
    batch = padded(AWKWARD, random_log_probs(shape, 0), random_log_probs(shape, 1))
    names = ["num_tokens", *AGGREGATES]
    samples = sample_frame(batch)
    combined = aggregate_rounds(round_frame(batch), "sample")
    expected = samples[samples["num_tokens"] > 0]
    np.testing.assert_allclose(combined[names], expected[names], rtol=1e-6)


def test_extremes_keep_their_sign_and_skip_what_is_unknown() -> None:
    combined = extremes(FRAME.assign(row=[0, 0, 1, 1]), "mean_diff", "row")
    assert combined.tolist() == [-1, 4]
    assert extremes(FRAME, "mean_diff", "round").isna().tolist() == [False, True]


def test_two_keys_give_a_row_for_each_pair_in_order_and_no_rows_give_none() -> None:
    frame = FRAME.assign(row=[1, 1, 0, 1])
    combined = aggregate_rounds(frame, "row", "round")
    assert combined[["row", "round"]].to_numpy().tolist() == [[0, 0], [1, 0], [1, 1]]
    assert combined["num_rows"].tolist() == [1, 2, 1]
    assert combined["mean_abs_diff"][1] == pytest.approx((2 * 1 + 4 * 2.5) / 6)
    assert aggregate_rounds(frame[:0], "row", "round").columns.equals(combined.columns)
    assert aggregate_rounds(frame[:0], "row", "round").empty

"""Composition and change within samples."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.errors import FrameError
from rounddiag.stats import cohorts, survivors
from tests.batches import hand_batch, padded

# Sample 0 has one round, sample 1 three, sample 2 two.
SIZES = {(0, 0): [0.1, 0.3], (1, 0): [0.5], (1, 1): [0.6, 0.6], (1, 2): [1.0],
         (2, 0): [0.2], (2, 1): [0.9]}  # fmt: skip


def frame() -> pd.DataFrame:
    rows = [(s, r, d) for (s, r), diffs in SIZES.items() for d in diffs]
    return pd.DataFrame(rows, columns=["sample", "round", "diff"])


def test_the_change_is_composition_and_change_within_samples() -> None:
    found = survivors(frame())

    assert found["round"].tolist() == [0, 1, 2]
    assert found["num_samples"].tolist() == [3, 2, 1]
    # Round 0: 1.1 / 4. Samples 1 and 2 at round 0: 0.7 / 2; sample 1: 0.5.
    assert found["mean_abs_diff"].tolist() == pytest.approx([0.275, 0.7, 1.0])
    assert found["first_mean_abs_diff"].tolist() == pytest.approx([0.275, 0.35, 0.5])
    assert found["composition"].tolist() == pytest.approx([0.0, 0.075, 0.225])
    assert found["within"].tolist() == pytest.approx([0.0, 0.35, 0.5])
    assert (found["change"] == found["composition"] + found["within"]).all()


def test_a_cohort_is_measured_at_every_earlier_round() -> None:
    found = cohorts(frame())

    assert found["reached"].tolist() == [0, 1, 1, 2, 2, 2]
    assert found["round"].tolist() == [0, 0, 1, 0, 1, 2]
    assert found["num_samples"].tolist() == [3, 2, 2, 1, 1, 1]
    assert found["mean_abs_diff"].tolist() == pytest.approx(
        [0.275, 0.35, 0.7, 0.5, 0.6, 1.0]
    )


def test_a_batch_gives_what_its_token_frame_gives() -> None:
    found = survivors(hand_batch())

    assert found["num_samples"].tolist() == [3, 2]
    # |diff|: 0.5, 0.25 | 1; 0, 0.25, 0.5 | 2; 1. The third sample has one round.
    assert found["mean_abs_diff"].tolist() == pytest.approx([2.5 / 6, 1.5])
    assert found["first_mean_abs_diff"].tolist() == pytest.approx([2.5 / 6, 1.5 / 5])


def test_tokens_without_a_finite_diff_are_left_out() -> None:
    tokens = frame()
    tokens.loc[0, "diff"] = np.nan

    assert survivors(tokens)["mean_abs_diff"][0] == pytest.approx((0.3 + 0.7) / 3)


def test_a_round_of_nothing_finite_has_no_mean() -> None:
    tokens = frame()
    tokens.loc[tokens["round"] == 2, "diff"] = np.inf
    found = survivors(tokens)

    assert np.isnan(found["mean_abs_diff"][2])
    assert found["num_samples"][2] == 1
    assert found["composition"][2] == pytest.approx(0.225)


def test_an_empty_batch_has_no_cohort() -> None:
    empty = torch.zeros(2, 3)
    batch = padded(empty, empty, empty)

    assert len(survivors(batch)) == 0
    assert len(cohorts(batch)) == 0
    assert cohorts(batch)["reached"].dtype == "int32"


def test_a_frame_without_diff_is_an_error() -> None:
    with pytest.raises(FrameError, match="without \\['diff'\\]"):
        survivors(frame().drop(columns="diff"))


@given(st.permutations(sorted(SIZES)))
def test_the_order_of_rounds_does_not_matter(order: list[tuple[int, int]]) -> None:
    rows = [(s, r, d) for s, r in order for d in SIZES[s, r]]
    shuffled = pd.DataFrame(rows, columns=["sample", "round", "diff"])

    found, expected = survivors(shuffled), survivors(frame())
    assert found["num_samples"].tolist() == expected["num_samples"].tolist()
    assert found["within"].tolist() == pytest.approx(expected["within"].tolist())

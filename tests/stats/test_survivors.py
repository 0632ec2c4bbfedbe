"""Composition and change within samples."""

from __future__ import annotations

import math
import re
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import token_frame
from rounddiag.errors import FrameError
from rounddiag.stats import survivors
from tests import oracle
from tests.batches import masks, padded, random_log_probs

# Sample 0 has one round, sample 1 three, sample 2 two.
SIZES = {(0, 0): [0.1, 0.3], (1, 0): [0.5], (1, 1): [0.6, 0.6], (1, 2): [1.0],
         (2, 0): [0.2], (2, 1): [0.9]}  # fmt: skip


def frame() -> pd.DataFrame:
    rows = [(s, r, d) for (s, r), diffs in SIZES.items() for d in diffs]
    return pd.DataFrame(rows, columns=["sample", "round", "diff"])


def test_the_change_is_composition_and_change_within_samples() -> None:
    means = survivors(frame())

    assert means["round"].tolist() == [0, 1, 2]
    assert means["num_samples"].tolist() == [3, 2, 1]
    # Round 0: 1.1 / 4. Samples 1 and 2 at round 0: 0.7 / 2; sample 1: 0.5.
    assert means["mean_abs_diff"].tolist() == pytest.approx([0.275, 0.7, 1.0])
    assert means["first_mean_abs_diff"].tolist() == pytest.approx([0.275, 0.35, 0.5])
    assert means["composition"].tolist() == pytest.approx([0.0, 0.075, 0.225])
    assert means["within"].tolist() == pytest.approx([0.0, 0.35, 0.5])
    assert (means["change"] == means["composition"] + means["within"]).all()


def test_a_round_of_nothing_finite_has_no_mean() -> None:
    tokens = frame()
    tokens.loc[tokens["round"] == 2, "diff"] = np.inf
    means = survivors(tokens)

    assert np.isnan(means["mean_abs_diff"][2])
    assert means["num_samples"][2] == 1
    assert means["composition"][2] == pytest.approx(0.225)


def by_loops(tokens: list[tuple[int, int, float]], reached: int, at: int) -> float:
    """Mean |diff| at one round of the samples that reach another."""
    samples = {sample for sample, index, _ in tokens if index >= reached}
    return oracle.mean(
        [
            abs(diff)
            for sample, index, diff in tokens
            if sample in samples and index == at and math.isfinite(diff)
        ]
    )


@given(masks(), st.integers(0, 2**16), st.booleans())
def test_every_mean_is_that_of_plain_loops(
    mask: list[list[int]], seed: int, some_are_nan: bool
) -> None:
    shape = len(mask), len(mask[0]) if mask else 0
    old, rollout = random_log_probs(shape, seed), random_log_probs(shape, seed + 1)
    if some_are_nan:
        old[random_log_probs(shape, seed + 2) < -1.2] = torch.nan
    batch = padded(torch.tensor(mask).reshape(shape), old, rollout)
    columns = token_frame(batch)[["sample", "round", "diff"]]
    tokens = list(columns.itertuples(index=False, name=None))
    num_rounds = max((index + 1 for _, index, _ in tokens), default=0)

    means = survivors(batch)
    wanted = [
        (by_loops(tokens, k, k), by_loops(tokens, k, 0)) for k in range(num_rounds)
    ]
    close = partial(pytest.approx, rel=1e-6, abs=1e-6, nan_ok=True)
    names = ["change", "composition", "within"]
    for (_, row), (mean, first) in zip(means.iterrows(), wanted, strict=True):
        parts = mean - wanted[0][0], first - wanted[0][0], mean - first
        if math.isnan(first):
            parts = (math.nan,) * 3
        assert row[["mean_abs_diff", "first_mean_abs_diff"]].tolist() == close(
            [mean, first]
        )
        assert row[names].tolist() == close(list(parts))
    known = means.dropna()
    assert (known["change"] == known["composition"] + known["within"]).all()


def test_without_a_finite_first_round_no_change_is_known() -> None:
    tokens = frame()
    tokens.loc[tokens["sample"].isin([1, 2]) & (tokens["round"] == 0), "diff"] = np.nan
    means = survivors(tokens)

    assert means["mean_abs_diff"].tolist() == pytest.approx([0.2, 0.7, 1.0])
    assert means["change"].isna().tolist() == [False, True, True]


def test_the_column_that_was_removed_says_what_to_use() -> None:
    message = "found 'rank'. Pass the samples of a value: `batch.where(...)`."
    with pytest.raises(FrameError, match=re.escape(message)):
        survivors(frame(), by="rank")  # type: ignore[call-arg]


def test_rows_of_a_frame_can_stand_in_any_order() -> None:
    mixed = frame().sample(frac=1, random_state=3)

    pd.testing.assert_frame_equal(survivors(mixed), survivors(frame()))

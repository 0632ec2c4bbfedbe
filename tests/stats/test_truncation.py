"""Shares of tokens and samples that a correction would touch."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag import token_frame
from rounddiag.errors import FrameError
from rounddiag.stats import truncation
from tests import oracle
from tests.batches import hand_batch, masks, padded, random_log_probs

LN2 = float(np.log(2))
FRAME = pd.DataFrame(
    {
        "sample": [0, 0, 0, 1, 1, 2],
        "round": [0, 0, 1, 0, 1, 0],
        "diff": [0.1, 0.8, 0.9, -0.8, 0.2, 0.0],
    }
)
RULES = ("above", "outside", "product_above", "product_outside", "mean_outside")


def shares(found: pd.DataFrame, rule: str) -> list[list[float]]:
    return [found[f"{rule}_{of}"].tolist() for of in ("tokens", "samples")]


def test_each_correction_touches_its_share_of_a_round() -> None:
    found = truncation(FRAME)

    assert found["round"].tolist() == [0, 1]
    assert found["num_samples"].tolist() == [3, 2]
    assert found["num_tokens"].tolist() == [4, 2]
    assert shares(found, "above") == [[1 / 4, 1 / 2], [pytest.approx(1 / 3), 1 / 2]]
    assert shares(found, "outside") == [[2 / 4, 1 / 2], [pytest.approx(2 / 3), 1 / 2]]
    # Sums 1.8, -0.6, 0: the first sample, with 2 of 4 tokens and 1 of 2.
    of_first = [[2 / 4, 1 / 2], [pytest.approx(1 / 3), 1 / 2]]
    assert shares(found, "product_above") == of_first
    assert shares(found, "product_outside") == of_first
    # Means 0.6, -0.3, 0: none beyond ln 2.
    assert shares(found, "mean_outside") == [[0, 0], [0, 0]]
    below = truncation(FRAME, threshold=1.5)
    assert shares(below, "mean_outside") == of_first
    least = truncation(FRAME.assign(diff=-FRAME["diff"]))
    assert shares(least, "product_above") == [[0, 0], [0, 0]]
    assert shares(least, "product_outside") == of_first


def by_verl(
    samples: list[list[float]], low: float, high: float
) -> dict[str, list[list[bool]]]:
    """Which tokens verl touches, token by token: of each sample's diffs.

    `compute_rollout_correction_weights` and `compute_rollout_rejection_mask`.
    """

    def of_all(flags: list[bool]) -> list[list[bool]]:
        return [[flag] * len(diffs) for flag, diffs in zip(flags, samples, strict=True)]

    ratios = [[math.exp(d) for d in diffs] for diffs in samples]
    products = [math.exp(math.fsum(diffs)) for diffs in samples]
    means = [math.exp(oracle.mean(diffs)) if diffs else 1.0 for diffs in samples]
    return {
        "above": [[r > high for r in of_sample] for of_sample in ratios],
        "outside": [[not low <= r <= high for r in of_sample] for of_sample in ratios],
        "product_above": of_all([p > high for p in products]),
        "product_outside": of_all([not low <= p <= high for p in products]),
        "mean_outside": of_all([not low <= m <= high for m in means]),
    }


@given(
    masks(),
    st.integers(0, 2**16),
    st.sampled_from([(1 / 2, 2.0), (1 / 1.1, 1.1), (0.2, 5.0), (0.5, 1.3)]),
)
def test_shares_are_those_of_verls_formulas(
    mask: list[list[int]], seed: int, limits: tuple[float, float]
) -> None:
    shape = len(mask), len(mask[0]) if mask else 0
    old, rollout = random_log_probs(shape, seed), random_log_probs(shape, seed + 1)
    batch = padded(torch.tensor(mask).reshape(shape), old, rollout)
    samples: list[list[float]] = [[] for _ in mask]
    rounds: list[list[int]] = [[] for _ in mask]
    tokens = token_frame(batch)[["sample", "round", "diff"]]
    for sample, index, diff in tokens.itertuples(index=False, name=None):
        samples[sample].append(diff)
        rounds[sample].append(index)
    touched = by_verl(samples, *limits)
    found = truncation(batch, threshold=limits[1], floor=limits[0]).set_index("round")

    assert found.index.tolist() == sorted({k for of in rounds for k in of})
    for k in found.index:
        for rule in RULES:
            of_samples = [
                [flag for flag, at in zip(flags, of, strict=True) if at == k]
                for flags, of in zip(touched[rule], rounds, strict=True)
                if k in of
            ]
            flags = [flag for of in of_samples for flag in of]
            assert found["num_samples"][k] == len(of_samples)
            assert found["num_tokens"][k] == len(flags)
            assert found[f"{rule}_tokens"][k] == pytest.approx(oracle.mean(flags))
            reached = [any(of) for of in of_samples]
            assert found[f"{rule}_samples"][k] == pytest.approx(oracle.mean(reached))


def test_a_ratio_at_the_threshold_is_inside() -> None:
    at_limits = FRAME.assign(diff=[LN2, -LN2, LN2, 0.0, 0.0, 0.0])

    assert truncation(at_limits)["outside_tokens"].tolist() == [0.0, 0.0]


def test_the_floor_can_be_chosen() -> None:
    found = truncation(FRAME, threshold=10.0, floor=0.5)

    assert found["above_tokens"].tolist() == [0.0, 0.0]
    assert found["outside_tokens"].tolist() == pytest.approx([1 / 4, 0.0])


def test_a_diff_that_is_not_finite_is_outside() -> None:
    found = truncation(FRAME.assign(diff=[np.nan, np.inf, 0.0, -np.inf, 0.0, 0.0]))

    assert found["above_tokens"].tolist() == pytest.approx([2 / 4, 0.0])
    assert found["outside_tokens"].tolist() == pytest.approx([3 / 4, 0.0])
    assert found["product_outside_samples"].tolist() == [0.0, 0.0]


def test_a_sample_of_nothing_finite_is_outside() -> None:
    found = truncation(FRAME.assign(diff=[np.nan] * 3 + [0.0] * 3))

    assert shares(found, "mean_outside") == [
        [2 / 4, 1 / 2],
        [pytest.approx(1 / 3), 0.5],
    ]


def test_a_batch_gives_what_its_token_frame_gives() -> None:
    found = truncation(hand_batch())

    # Round 0: 0.5, -0.25 | 0, 0.25, -0.5 | -1; round 1: 1 | 2.
    assert shares(found, "outside") == [
        [pytest.approx(1 / 6), 1.0],
        [pytest.approx(1 / 3), 1.0],
    ]
    pd.testing.assert_frame_equal(truncation(token_frame(hand_batch())), found)


def test_a_column_of_rounds_gives_a_row_per_value_and_round() -> None:
    found = truncation(FRAME.assign(version=[1, 1, 1, 1, 2, 2]), by="version")

    assert found.columns[:2].tolist() == ["version", "round"]
    assert found[["version", "round", "num_tokens"]].to_numpy().tolist() == [
        [1, 0, 3],
        [1, 1, 1],
        [2, 0, 1],
        [2, 1, 1],
    ]
    assert found["outside_tokens"].tolist() == pytest.approx([2 / 3, 1, 0, 0])
    # Over all rounds of a sample, whatever their versions.
    assert found["product_outside_samples"].tolist() == [0.5, 1, 0, 0]


def test_rows_of_a_frame_can_stand_in_any_order() -> None:
    found = truncation(FRAME.iloc[[3, 0, 2, 1, 5, 4]])
    pd.testing.assert_frame_equal(found, truncation(FRAME))


def test_the_worst_samples_of_a_file_do_not_count() -> None:
    columns = {"picked": np.array(["random", "worst", "random"])}
    batch = hand_batch(sample_columns=columns, meta={"capture": {"rounds": []}})
    assert truncation(batch)["num_tokens"].tolist() == [3, 1]


@pytest.mark.parametrize("by", [None, "num_rounds"])
def test_an_empty_batch_has_no_round(by: str | None) -> None:
    empty = torch.zeros(2, 3)
    found = truncation(padded(empty, empty, empty), by=by)
    assert len(found) == 0
    assert found.columns.tolist()[-1] == "mean_outside_samples"


@pytest.mark.parametrize(("threshold", "floor"), [(1.0, None), (0.5, None), (2, 1.5)])
def test_a_threshold_that_is_none_is_an_error(
    threshold: float, floor: float | None
) -> None:
    shown = 1 / threshold if floor is None else floor
    message = (
        "expected `threshold` above 1, and `floor` between 0 and 1; found"
        f" {threshold} and {shown}. Pass ratios of probabilities, such as 2.0 and 0.5."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        truncation(FRAME, threshold=threshold, floor=floor)

"""Shares of tokens and samples that a correction would touch."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag.errors import FrameError
from rounddiag.stats import truncation
from tests.batches import hand_batch, padded

LN2 = float(np.log(2))
FRAME = pd.DataFrame(
    {
        "sample": [0, 0, 0, 1, 1, 2],
        "round": [0, 0, 1, 0, 1, 0],
        "diff": [0.1, 0.8, 0.9, -0.8, 0.2, 0.0],
    }
)


def test_each_correction_touches_its_share_of_a_round() -> None:
    found = truncation(FRAME)

    assert found["round"].tolist() == [0, 1]
    assert found["num_samples"].tolist() == [3, 2]
    assert found["num_tokens"].tolist() == [4, 2]
    assert found["above"].tolist() == pytest.approx([1 / 4, 1 / 2])
    assert found["outside"].tolist() == pytest.approx([2 / 4, 1 / 2])
    assert found["touched"].tolist() == pytest.approx([2 / 3, 1 / 2])
    # Means 0.6, -0.3, 0: none beyond ln 2. Sums 1.8, -0.6, 0: the first is.
    assert found["mean_outside"].tolist() == [0.0, 0.0]
    assert found["product_outside"].tolist() == pytest.approx([1 / 3, 1 / 2])


def test_a_ratio_at_the_threshold_is_inside() -> None:
    at_limits = FRAME.assign(diff=[LN2, -LN2, LN2, 0.0, 0.0, 0.0])

    assert truncation(at_limits)["outside"].tolist() == [0.0, 0.0]


def test_the_floor_can_be_chosen() -> None:
    found = truncation(FRAME, threshold=10.0, floor=0.5)

    assert found["above"].tolist() == [0.0, 0.0]
    assert found["outside"].tolist() == pytest.approx([1 / 4, 0.0])


def test_a_diff_that_is_not_finite_is_outside() -> None:
    found = truncation(FRAME.assign(diff=[np.nan, np.inf, 0.0, 0.0, 0.0, 0.0]))

    assert found["outside"].tolist() == pytest.approx([2 / 4, 0.0])
    assert found["product_outside"].tolist() == [0.0, 0.0]


def test_a_batch_gives_what_its_token_frame_gives() -> None:
    found = truncation(hand_batch())

    # Round 0: 0.5, -0.25 | 0, 0.25, -0.5 | -1; round 1: 1 | 2.
    assert found["outside"].tolist() == pytest.approx([1 / 6, 1.0])
    assert found["above"].tolist() == pytest.approx([0.0, 1.0])


def test_an_empty_batch_has_no_round() -> None:
    empty = torch.zeros(2, 3)
    assert len(truncation(padded(empty, empty, empty))) == 0


@pytest.mark.parametrize(("threshold", "floor"), [(1.0, None), (0.5, None), (2, 1.5)])
def test_a_threshold_that_is_none_is_an_error(
    threshold: float, floor: float | None
) -> None:
    shown = 1 / threshold if floor is None else floor
    message = (
        "expected `threshold` above 1, and `floor` between 0 and 1; found"
        f" {threshold} and {shown}. Pass ratios of probabilities, 2.0 and 0.5 say."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        truncation(FRAME, threshold=threshold, floor=floor)

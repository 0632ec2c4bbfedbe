"""Places of tokens: probabilities, or log-probs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rounddiag.stats.agreement import Bins, token_bins, token_pairs

FRAME = pd.DataFrame(
    {"rollout_log_prob": [0.0, -1.0, -2.0], "old_log_prob": [0.0, -3.0, -np.inf]}
)


def test_probabilities_are_both_axes_and_both_values() -> None:
    pairs = token_pairs(FRAME, "probability")

    assert pairs["x"].tolist() == pytest.approx([1, np.exp(-1), np.exp(-2)])
    assert pairs["y"].tolist() == pytest.approx([1, np.exp(-3), 0])


def test_log_probs_are_as_they_are() -> None:
    pairs = token_pairs(FRAME, "log_prob")

    assert pairs["x"].tolist() == [0, -1, -2]
    assert pairs["y"].tolist() == [0, -3, -np.inf]


def test_a_probability_too_large_to_exist_is_infinite_and_no_warning() -> None:
    wrong = FRAME.assign(old_log_prob=[0.0, 9000.0, np.nan])

    assert token_pairs(wrong, "probability")["y"].tolist()[1] == np.inf


def test_bins_of_probabilities_are_fixed_and_those_of_log_probs_end_at_minus_20() -> (
    None
):
    unit = Bins(low=0.0, high=1.0, num=100)
    assert token_bins(token_pairs(FRAME, "probability"), "probability", 100) == unit
    assert token_bins(token_pairs(FRAME, "log_prob"), "log_prob", 100).low == -3
    far = FRAME.assign(old_log_prob=[-1e9, -3.0, -4.0])
    assert token_bins(token_pairs(far, "log_prob"), "log_prob", 100).low == -20

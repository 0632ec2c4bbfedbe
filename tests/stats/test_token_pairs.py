"""Places of tokens: probabilities, log-probs, or diff against probability."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rounddiag.stats.agreement import Bins, signed_log, token_bins, token_pairs

FRAME = pd.DataFrame(
    {"rollout_log_prob": [0.0, -1.0, -2.0], "old_log_prob": [0.0, -3.0, -np.inf]}
)


def test_probabilities_are_both_axes_and_both_values() -> None:
    pairs = token_pairs(FRAME, "probability")

    assert pairs["rollout"].tolist() == pytest.approx([1, np.exp(-1), np.exp(-2)])
    assert pairs["old"].tolist() == pytest.approx([1, np.exp(-3), 0])
    assert pairs["x"].equals(pairs["rollout"].rename("x"))
    assert pairs["y"].equals(pairs["old"].rename("y"))


def test_log_probs_are_as_they_are() -> None:
    pairs = token_pairs(FRAME, "log_prob")

    assert pairs["x"].tolist() == pairs["rollout"].tolist() == [0, -1, -2]
    assert pairs["y"].tolist() == pairs["old"].tolist() == [0, -3, -np.inf]


def test_a_diff_stands_over_the_rollout_probability() -> None:
    pairs = token_pairs(FRAME, "diff")

    assert pairs["rollout"].tolist() == [0, -1, -2]
    assert pairs["x"].tolist() == pytest.approx([1, np.exp(-1), np.exp(-2)])
    # asinh(-2000), to six digits: -log(4000).
    assert pairs["y"].tolist()[:2] == pytest.approx([0, -np.log(4000)], rel=1e-6)
    assert pairs["y"][2] == -np.inf


def test_a_probability_too_large_to_exist_is_infinite_and_no_warning() -> None:
    wrong = FRAME.assign(old_log_prob=[0.0, 9000.0, np.nan])

    assert token_pairs(wrong, "probability")["y"].tolist()[1] == np.inf


def test_a_signed_log_is_odd_and_ascends() -> None:
    values = np.array([-1e30, -1.0, -1e-6, 0.0, 1e-6, 1.0, 1e30])
    logs = signed_log(values)

    np.testing.assert_array_equal(logs, -logs[::-1])
    assert (np.diff(logs) > 0).all()


def test_bins_of_probabilities_are_fixed_and_those_of_log_probs_end_at_minus_20() -> (
    None
):
    unit = Bins(low=0.0, high=1.0, num=100)
    assert token_bins(token_pairs(FRAME, "probability"), "probability", 100) == (
        unit,
        unit,
    )
    assert token_bins(token_pairs(FRAME, "log_prob"), "log_prob", 100)[0].low == -3
    far = FRAME.assign(old_log_prob=[-1e9, -3.0, -4.0])
    assert token_bins(token_pairs(far, "log_prob"), "log_prob", 100)[1].low == -20


def test_zero_is_in_the_middle_bin_of_diffs() -> None:
    for log_prob in (0.0, -5.0):
        pairs = token_pairs(FRAME.assign(old_log_prob=log_prob), "diff")
        _, y = token_bins(pairs, "diff", 100)
        assert y.place(np.array([0.0])).tolist() == [50]
        assert y.low == -y.high
        assert not y.is_beyond(pairs["y"].to_numpy()).any()

"""What differs most between two batches."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from rounddiag.stats import worst_cells
from rounddiag.stats.pairing import pair_samples, worst_differences


def tokens(*cells: tuple[int, int, list[float]]) -> pd.DataFrame:
    """A token frame of cells: sample, round, diffs."""
    rows = [
        {"sample": sample, "round": index, "token": token, "diff": diff}
        for sample, index, diffs in cells
        for token, diff in enumerate(diffs)
    ]
    return pd.DataFrame(rows).astype({"diff": "float32"})


def test_the_largest_difference_of_either_sign_comes_first() -> None:
    before = tokens((0, 0, [1.0] * 20), (1, 0, [3.0] * 20), (2, 0, [1.0] * 20))
    after = tokens((0, 0, [1.5] * 20), (1, 0, [-1.0] * 20), (2, 0, [2.0] * 20))
    worst = worst_differences(before, after, pair_samples("abc", "abc"))["rounds"]
    assert worst["sample"].tolist() == [1, 2, 0]
    assert worst["difference"].tolist() == [-2.0, 1.0, 0.5]
    assert worst["low"].is_monotonic_decreasing
    assert worst["baseline_mean"].tolist() == [3.0, 1.0, 1.0]
    assert worst["mean"].tolist() == [1.0, 2.0, 1.5]


def test_the_bound_is_of_both_means() -> None:
    # A mean of 1 with a standard deviation of 1, a mean of 4 with one of 2.
    before, after = tokens((0, 0, [0.0, 2.0] * 10)), tokens((0, 0, [2.0, 6.0] * 10))
    worst = worst_differences(before, after, pair_samples("a", "a"))["rounds"]
    # Ten tokens of the same mean and spread are added to the 20.
    variance = 30 / 29 * (1 + 4) / 30
    assert worst["low"][0] == pytest.approx(3 - 1.96 * math.sqrt(variance))


def test_pairs_have_the_numbers_of_both_batches() -> None:
    before = tokens((0, 0, [1.0] * 20), (1, 0, [2.0] * 20))
    after = tokens((0, 0, [9.0] * 20))
    worst = worst_differences(before, after, pair_samples(["x", "y"], ["y"]))
    for rows in worst.values():
        assert rows["sample_id"].tolist() == ["y"]
        assert rows["baseline_sample"].tolist() == [1]
        assert rows["sample"].tolist() == [0]
        assert rows["difference"].tolist() == [7.0]
    assert "round" in worst["rounds"]
    assert "round" not in worst["samples"]


def test_a_few_tokens_do_not_differ_most_by_accident() -> None:
    before = tokens((0, 0, [0.0]), (0, 1, [0.0] * 20), (1, 0, [0.0] * 400))
    after = tokens((0, 0, [5.0]), (0, 1, [1.0] * 20), (1, 0, [0.0] * 400))
    worst = worst_differences(before, after, pair_samples("ab", "ab"))["rounds"]
    assert worst["round"].tolist() == [1, 0]


def test_no_more_than_asked_for() -> None:
    cells = [(sample, 0, [float(sample)] * 20) for sample in range(5)]
    before = tokens(*((sample, 0, [0.0] * 20) for sample in range(5)))
    worst = worst_differences(
        before, tokens(*cells), pair_samples("abcde", "abcde"), num=2
    )
    assert worst["rounds"]["sample"].tolist() == [4, 3]
    assert worst["samples"]["sample"].tolist() == [4, 3]


def test_what_is_not_sure_comes_by_its_size() -> None:
    before = tokens((0, 0, [1.0] * 20), (1, 0, [1.0] * 20), (2, 0, [1.0] * 400))
    after = tokens(
        (0, 0, [0.0, 2.5] * 10), (1, 0, [0.0, 2.75] * 10), (2, 0, [1.125] * 400)
    )
    worst = worst_differences(before, after, pair_samples("abc", "abc"))["rounds"]
    assert worst["sample"].tolist() == [2, 1, 0]
    assert (worst["low"] > 0).tolist() == [True, False, False]


def test_what_is_the_same_in_both_is_not_in_the_list() -> None:
    before = tokens((0, 0, [1.0] * 20), (1, 0, [1.0, 3.0] * 10))
    after = tokens((0, 0, [1.0] * 20), (1, 0, [1.0, 3.0] * 9 + [1.0, 5.0]))
    pairs = pair_samples("ab", "ab")
    assert worst_differences(before, after, pairs)["rounds"]["sample"].tolist() == [1]
    assert worst_differences(before, before, pairs)["samples"].empty


def test_without_pairs_nothing_differs() -> None:
    frame = tokens((0, 0, [1.0] * 20))
    worst = worst_differences(frame, frame, pair_samples(None, None))
    assert worst["rounds"].empty
    assert worst["samples"].empty


def test_an_empty_batch_differs_from_nothing() -> None:
    frame = tokens((0, 0, [1.0] * 20))
    worst = worst_differences(frame, frame.iloc[:0], pair_samples("a", "a"))
    assert worst["rounds"].empty


def test_bounds_and_order_are_those_of_a_loop() -> None:
    generator = np.random.default_rng(3)
    places = [(sample, index) for sample in range(4) for index in (0, 1)]
    before, after = (
        tokens(*((*place, generator.exponential(size=25).tolist()) for place in places))
        for _ in range(2)
    )
    known = [
        {(row["sample"], row["round"]): row for row in rows}
        for rows in (worst_cells(x, num=8).to_dict("records") for x in (before, after))
    ]
    expected = {}
    for place in places:
        (m0, l0), (m1, l1) = (
            (of[place]["mean_abs_diff"], of[place]["low"]) for of in known
        )
        expected[place] = abs(m1 - m0) - math.hypot(m0 - l0, m1 - l1)
    worst = worst_differences(before, after, pair_samples("abcd", "abcd"))["rounds"]
    keys = [*zip(worst["sample"], worst["round"], strict=True)]
    sure = sorted((p for p in places if expected[p] > 0), key=lambda p: -expected[p])
    assert keys[: len(sure)] == sure
    assert worst["low"].tolist() == pytest.approx([expected[place] for place in keys])

"""One order for the samples of two batches."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.stats.heatmap_rows import common_order
from rounddiag.stats.pairing import pair_samples


def samples(mean: list[float], **columns: list[Any]) -> pd.DataFrame:
    number = range(len(mean))
    return pd.DataFrame({"sample": number, "mean_abs_diff": mean, **columns})


def test_by_number_is_by_that_of_the_first_batch() -> None:
    before, after = samples([1.0, 2.0, 3.0]), samples([1.0, 2.0, 3.0])
    orders = common_order(before, after, pair_samples("xyz", "zyx"), "sample")
    assert orders == ([0, 1, 2], [2, 1, 0])


def test_worst_first_is_the_larger_of_either_batch() -> None:
    before, after = samples([1.0, 2.0, -5.0]), samples([4.0, 1.0, 0.0])
    orders = common_order(before, after, pair_samples("xyz", "xyz"), "worst")
    assert orders == ([2, 0, 1], [2, 0, 1])


def test_what_one_batch_does_not_know_the_other_tells() -> None:
    before, after = samples([1.0, float("nan")]), samples([float("nan"), 3.0])
    orders = common_order(before, after, pair_samples("xy", "xy"), "worst")
    assert orders == ([1, 0], [1, 0])


def test_those_without_a_partner_come_last_in_the_same_order() -> None:
    before, after = samples([1.0, 9.0, 2.0, 8.0]), samples([3.0, 7.0])
    orders = common_order(before, after, pair_samples("xyzw", "vx"), "worst")
    assert orders == ([0, 1, 3, 2], [1, 0])


def test_most_rounds_are_those_of_either_batch() -> None:
    before = samples([0.0, 0.0], num_rounds=[2, 3])
    after = samples([0.0, 0.0], num_rounds=[5, 1])
    orders = common_order(before, after, pair_samples("xy", "xy"), "rounds")
    assert orders == ([0, 1], [0, 1])


@pytest.mark.parametrize(
    ("order", "column", "values"),
    [
        ("reward", "reward", ([0.0, 1.0], [5.0, 0.0])),
        ("group", "group_id", ("ba", "ab")),
    ],
)
def test_rewards_and_groups_are_those_of_the_first_batch(
    order: Any, column: str, values: Any
) -> None:
    before, after = (samples([0.0, 0.0], **{column: [*of]}) for of in values)
    first, other = common_order(before, after, pair_samples("xy", "xy"), order)
    assert first == other == ([1, 0] if order == "reward" else [0, 1])


@given(
    before=st.permutations("abcdef"),
    after=st.permutations("abcdefgh"),
    order=st.sampled_from(["sample", "worst"]),
)
def test_pairs_stand_in_the_same_places_and_nobody_is_lost(
    before: list[str], after: list[str], order: Any
) -> None:
    before_rows, after_rows = (
        samples([float(ord(name) % 5) for name in ids]) for ids in (before, after)
    )
    first, other = common_order(
        before_rows, after_rows, pair_samples(before, after), order
    )
    assert sorted(first) == [*range(6)]
    assert sorted(other) == [*range(8)]
    assert [before[i] for i in first] == [after[i] for i in other[:6]]

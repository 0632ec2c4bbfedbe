"""Which samples of two batches are the same."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.stats.pairing import pair_samples

IDS = st.lists(st.sampled_from("abcdefgh"), max_size=8)


def rows(pairs: pd.DataFrame) -> list[tuple[str, int, int]]:
    return [*pairs.itertuples(index=False, name=None)]


def test_samples_of_one_id_are_pairs_in_the_order_of_the_first_batch() -> None:
    pairs = pair_samples(("x", "y", "z"), ("z", "w", "x"))
    assert rows(pairs) == [("x", 0, 2), ("z", 2, 0)]
    assert pairs.dtypes.astype(str).tolist() == ["object", "int32", "int32"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, None),
        (("x", "y"), None),
        ((), ()),
        (("x", "y"), ("v", "w")),
        (("x", "y", "z"), ("x", "v", "w")),
        (("x", "x"), ("x", "x")),
    ],
    ids=["none", "one without", "empty", "others", "one of three", "of two samples"],
)
def test_batches_that_share_too_few_ids_have_no_pairs(before: Any, after: Any) -> None:
    pairs = pair_samples(before, after)
    assert rows(pairs) == []
    assert [*pairs.columns] == ["sample_id", "baseline_sample", "sample"]


@given(before=IDS, after=IDS)
def test_pairs_are_those_that_a_loop_finds(before: list[str], after: list[str]) -> None:
    expected = []
    for place, name in enumerate(before):
        if before.count(name) == 1 and after.count(name) == 1:
            expected.append((name, place, after.index(name)))
    if 2 * len(expected) < min(len(before), len(after)):
        expected = []
    assert rows(pair_samples(before, after)) == expected

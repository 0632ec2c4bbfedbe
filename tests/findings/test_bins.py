"""The fast codes of values against numpy's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rounddiag._typing import Array
from rounddiag.findings.bins import bins, distinct, group_by_bin, quantile_edges

VALUES = arrays.arrays(
    np.float64,
    st.integers(1, 60),
    elements=st.integers(-20, 0).map(lambda number: number / 4),
)


@given(VALUES, VALUES, st.integers(2, 24))
def test_bins_are_those_of_searchsorted(by: Array, at: Array, num: int) -> None:
    edges = quantile_edges(by, num)
    inner = np.linspace(0, 1, num + 1)[1:-1]
    np.testing.assert_array_equal(edges, np.unique(np.quantile(by, inner)))
    np.testing.assert_array_equal(bins(edges, at), np.searchsorted(edges, at))


def test_bins_over_several_blocks() -> None:
    values = np.random.default_rng(0).normal(size=40_000)
    edges = quantile_edges(values, 24)
    codes = bins(edges, values)
    np.testing.assert_array_equal(codes, np.searchsorted(edges, values))
    groups = group_by_bin(codes, len(edges) + 1)
    assert [len(group) for group in groups] == np.bincount(codes).tolist()
    assert all((codes[group] == k).all() for k, group in enumerate(groups))


def test_nan_is_in_the_last_bin_and_makes_no_edge() -> None:
    assert bins(np.array([0.0]), np.array([np.nan, 0.0])).tolist() == [1, 0]
    assert quantile_edges(np.array([np.nan, 1.0]), 4).tolist() == []


@given(
    arrays.arrays(
        np.int64,
        st.integers(0, 40),
        elements=st.one_of(st.integers(0, 50), st.sampled_from([-1, 10**12])),
    )
)
def test_distinct_is_unique(values: Array) -> None:
    known, codes = distinct(values)
    expected = np.unique(values, return_inverse=True)
    np.testing.assert_array_equal(known, expected[0])
    np.testing.assert_array_equal(codes, expected[1])

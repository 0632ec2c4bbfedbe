"""Logarithmic axes show all means, their intervals, and two ticks at least."""

from __future__ import annotations

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.figures._parts.axes import LogAxis, tick_text

NAN = math.nan
POSITIVE = st.floats(1e-12, 1e6)


def around(*means: float, low: float = NAN, high: float = NAN) -> LogAxis:
    columns = {"mean": [*means], "ci_low": low, "ci_high": high}
    return LogAxis.around(pd.DataFrame(columns))


def test_an_interval_is_shown_unless_it_is_very_long() -> None:
    near = around(0.1, low=0.02, high=0.9)
    assert near.low < 0.02
    assert near.high > 0.9
    far = around(0.1, low=0.0001, high=50.0)
    assert 0.01 < far.low < 0.1
    assert 0.1 < far.high < 1.0


def test_zeros_stand_over_the_low_end_and_the_others_stay() -> None:
    axis = around(0.0, 0.1, NAN)
    zero, mean, undefined = axis.place(pd.Series([0.0, 0.1, NAN])).tolist()
    assert axis.low < zero < mean == 0.1
    assert math.isnan(undefined)


@pytest.mark.parametrize("means", [(), (0.0,), (NAN, 0.0)])
def test_without_a_positive_mean_there_is_an_axis_too(means: tuple[float, ...]) -> None:
    assert around(*means) == LogAxis(low=1e-4, high=1.0)


def test_ticks_are_finer_where_there_are_few_decades() -> None:
    layout = LogAxis(low=0.009, high=0.2).layout()
    assert layout["tickvals"] == [0.01, 0.03, 0.1]
    assert LogAxis(low=0.009, high=0.06).layout()["tickvals"] == [0.01, 0.02, 0.05]
    wide = LogAxis(low=2e-7, high=2.0)
    assert wide.layout()["tickvals"] == [1e-6, 1e-4, 1e-2, 1.0]
    assert len(wide.layout(10)["tickvals"]) == 7


@given(st.lists(POSITIVE, min_size=1))
def test_every_mean_is_on_the_axis_with_two_ticks(means: list[float]) -> None:
    axis = around(*means)
    assert axis.low < min(means) <= max(means) < axis.high
    layout = axis.layout()
    assert 2 <= len(layout["tickvals"]) <= 6
    assert all(axis.low <= tick <= axis.high for tick in layout["tickvals"])


def test_powers_of_ten_are_short() -> None:
    assert [tick_text(10.0**i) for i in range(-4, 5)] == [
        *("10<sup>-4</sup>", "0.001", "0.01", "0.1", "1", "10", "100", "1000"),
        "10<sup>4</sup>",
    ]

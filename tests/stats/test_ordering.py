"""Orders of samples."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd
import pytest

from rounddiag.errors import FrameError
from rounddiag.stats.heatmap_rows import order_rows

NAN = math.nan
SAMPLES = pd.DataFrame(
    {
        "sample": [0, 1, 2, 3],
        "mean_abs_diff": [0.2, NAN, 0.9, 0.2],
        "mean_diff": [-0.9, NAN, 0.1, 0.2],
        "num_rounds": [1, 0, 3, 3],
        "reward": [0.0, 1.0, NAN, 0.5],
        "group_id": ["b", "a", "b", "a"],
    }
)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("sample", [0, 1, 2, 3]),
        ("worst", [2, 0, 3, 1]),
        ("rounds", [2, 3, 0, 1]),
        ("reward", [1, 3, 0, 2]),
        ("group", [0, 2, 1, 3]),
    ],
)
def test_samples_stand_in_the_order(order: Any, expected: list[int]) -> None:
    assert order_rows(SAMPLES, order)["sample"].tolist() == expected


def test_the_worst_of_a_signed_metric_is_farthest_from_zero() -> None:
    assert order_rows(SAMPLES, "worst", "mean_diff")["sample"].tolist() == [0, 3, 2, 1]


def test_a_list_of_samples_is_an_order_of_none_but_these() -> None:
    assert order_rows(SAMPLES, [3, 0])["sample"].tolist() == [3, 0]
    assert order_rows(SAMPLES, []).empty


@pytest.mark.parametrize(("order", "found"), [([0, 4], "4"), ([2, 1, 2], "2")])
def test_a_list_must_name_each_sample_once(order: list[int], found: str) -> None:
    message = (
        f"`order`: expected each sample once, of 4; found {found}."
        " Name samples by their numbers or ids."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        order_rows(SAMPLES, order)


def test_an_unknown_order_is_refused() -> None:
    message = (
        "`order`: expected one of ['sample', 'worst', 'rounds', 'reward', 'group'];"
        " found 'best'. Leave it out for the order of the batch."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        order_rows(SAMPLES, "best")


@pytest.mark.parametrize(
    ("order", "field", "column"),
    [("reward", "rewards", "reward"), ("group", "group_ids", "group_id")],
)
def test_the_error_names_what_an_order_needs(
    order: Any, field: str, column: str
) -> None:
    message = (
        f"`order`: expected a batch with `{field}` for {order!r}, or a round frame with"
        f" `{column}`; found none. Choose another order, such as `worst`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        order_rows(SAMPLES.drop(columns=column), order)

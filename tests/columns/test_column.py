"""Values of a column, what is known of them, and their codes."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag.columns import Column, Kind
from rounddiag.columns.column import kind_of
from rounddiag.columns.predicates import meets, rows_between
from rounddiag.errors import FrameError

TIMES = np.array(["2026-03-01", "NaT", "2026-02-01"], "M8[D]")


@pytest.mark.parametrize(
    ("values", "kind", "known", "codes", "distinct"),
    [
        (
            np.array([2.5, np.nan, np.inf]),
            "number",
            [1, 0, 1],
            [0, -1, 1],
            [2.5, np.inf],
        ),
        (np.array([7, 5, 7], "u1"), "number", [1, 1, 1], [1, 0, 1], [5, 7]),
        (np.array([True, False, True]), "flag", [1, 1, 1], [1, 0, 1], [False, True]),
        (np.array(["b", None, "a"], object), "text", [1, 0, 1], [1, -1, 0], ["a", "b"]),
        (np.array(["b", "", "b"]), "text", [1, 1, 1], [1, 0, 1], ["", "b"]),
        (
            np.array([float("nan"), True, 3], object),
            "text",
            [0, 1, 1],
            [-1, 1, 0],
            ["3", "True"],
        ),
        (np.array([[1, 2]] * 3), "text", [1, 1, 1], [0, 0, 0], ["[1, 2]"]),
        (TIMES, "time", [1, 0, 1], [1, -1, 0], [date(2026, 2, 1), date(2026, 3, 1)]),
    ],
)
def test_an_unknown_value_has_no_code(
    values: np.ndarray,
    kind: Kind,
    known: list[int],
    codes: list[int],
    distinct: list[Any],
) -> None:
    column = Column.of("fact", "sample", values)
    assert column.kind == kind
    assert column.is_known().tolist() == [*map(bool, known)]
    assert column.codes()[0].tolist() == codes
    assert column.codes()[1].tolist() == distinct
    assert len(column.values()) == sum(known)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(np.int64(3), "3"), (np.bool_(1), "True"), (np.float16(0.5), "0.5")],
        *[(np.longdouble(2.5), "2.5"), (np.str_("a"), "a"), (np.array(7), "7")],
        *[(torch.tensor(7), "7"), (Decimal("0.1"), "0.1")],
        (np.datetime64("2026-01-02", "ns"), "2026-01-02 00:00:00"),
        (np.timedelta64(90, "s"), "0:01:30"),
        (pd.Timestamp("2026-01-02"), "2026-01-02 00:00:00"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "missing",
    [
        *[None, float("nan"), np.float32("nan"), np.longdouble("nan"), pd.NA, pd.NaT],
        *[Decimal("nan"), Decimal("sNaN"), np.datetime64("NaT"), np.timedelta64("NaT")],
    ],
    ids=repr,
)
def test_objects_by_hand_are_values_as_python_has_them(
    value: object, text: str, missing: object
) -> None:
    values = np.empty(2, dtype=object)
    values[:] = [missing, value]
    column = Column.of("fact", "sample", values)
    assert column.is_known().tolist() == [False, True]
    assert [*map(str, column.values())] == [text]
    assert column.codes()[1].tolist() == [text]


@pytest.mark.parametrize("values", [[3, 5], [0.5, 1.5], ["a", "b"]])
def test_a_masked_value_is_unknown(values: list[Any]) -> None:
    masked = np.ma.array(values, mask=[True, False])
    column = Column.of("fact", "sample", masked)
    assert column.is_known().tolist() == [False, True]
    assert column.values().tolist() == values[1:]


def test_an_unknown_value_is_not_given() -> None:
    column = Column.of("version", "round", np.array([3.0, np.nan, 4.0]))
    assert column.values(np.array([2, 0])).tolist() == [4.0, 3.0]
    assert column.is_known(np.array([1, 2])).tolist() == [False, True]
    message = (
        "`version`: expected rows whose value is known; found 1 of 2 without one."
        " Select rows by `is_known` first."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        column.values(np.array([0, 1]))


def test_a_source_is_read_once_and_when_asked() -> None:
    reads = []

    def read() -> np.ndarray:
        reads.append(1)
        return np.arange(3)

    column = Column("rank", "sample", read, "name")
    assert reads == []
    assert column.codes()[0].tolist() == [0, 1, 2]
    assert reads == [1]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("dp_rank", "name"), ("engine_id", "name"), ("num_calls", "number")],
)
def test_numbers_that_are_names_have_no_order(name: str, kind: Kind) -> None:
    assert kind_of(name, np.arange(3)) == kind
    assert kind_of(name, np.array(["a"])) == "text"


@pytest.mark.parametrize(
    ("relation", "code", "expected"),
    [
        ("=", 1, [0, 0, 0, 1]),
        (">=", 0, [1, 0, 1, 1]),
        (">=", 1, [0, 0, 1, 1]),
        ("<=", 1, [1, 0, 0, 1]),
    ],
)
def test_an_unknown_code_meets_no_condition(
    relation: Any, code: int, expected: list[int]
) -> None:
    assert meets(np.array([1, 0, 3, 2]), relation, code).tolist() == expected


def test_an_unknown_row_is_in_no_range() -> None:
    column = Column.of("reward", "sample", np.array([0.5, np.nan, 2.0, np.inf]))
    assert rows_between(column, -np.inf, np.inf).tolist() == [True, False, True, True]
    assert rows_between(column, 0.5, 1.0).tolist() == [True, False, False, False]


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i8", "u8"])
@pytest.mark.parametrize("end", ["min", "max"])
def test_whole_numbers_have_the_codes_that_sorting_gives(dtype: str, end: str) -> None:
    limit = getattr(np.iinfo(dtype), end)
    away = 1 if end == "min" else -1
    values = np.array([limit + away * at for at in (3, 0, 5, 3, 3, 5, 7, 0)], dtype)
    codes, known = Column.of("token", "token", values).codes()
    expected, index = np.unique(values, return_inverse=True)
    assert known.dtype == expected.dtype
    assert known.tolist() == expected.tolist()
    assert codes.tolist() == index.tolist()


def test_codes_of_every_value_of_a_byte() -> None:
    values = np.arange(-128, 128).astype(np.int8)
    codes, known = Column.of("token", "token", values[::-1]).codes()
    assert known.tolist() == values.tolist()
    assert codes.tolist() == [*range(255, -1, -1)]

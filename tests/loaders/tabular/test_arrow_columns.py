"""Every type of Arrow that numbers of a batch come in."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.columns.sources import Ragged
from rounddiag.loaders import load
from rounddiag.loaders.arrow import plain_column, rows_from_lists
from tests.loaders.table_cases import COLUMNS, check

NAN = float("nan")


def column(values: list[Any], kind: pa.DataType | None = None) -> pa.ChunkedArray:
    """The values in two chunks."""
    array = pa.array(values, kind)
    return pa.chunked_array([array[:1], array[1:]])


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(pa.int8()), pa.large_list(pa.int32()), pa.list_(pa.int64(), 2)),
        *(pa.list_(pa.uint16()), pa.list_(pa.uint64())),
    ],
)
def test_lists_of_whole_numbers_of_every_kind_are_rows(kind: pa.DataType) -> None:
    found = rows_from_lists(column([[5, 6], [7, 8]], kind))

    assert isinstance(found, Ragged)
    assert found.values.tolist() == [5, 6, 7, 8]
    assert found.offsets.tolist() == [0, 2, 4]
    assert not found.values.is_floating_point()


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (pa.float16(), torch.float16),
        (pa.float32(), torch.float32),
        (pa.float64(), torch.float64),
        (pa.bool_(), torch.bool),
        (pa.decimal128(6, 2), torch.float64),
    ],
)
def test_numbers_keep_the_dtype_that_torch_has(
    kind: pa.DataType, dtype: torch.dtype
) -> None:
    makers = {pa.bool_(): bool, pa.decimal128(6, 2): Decimal, pa.float16(): np.float16}
    of = makers.get(kind, float)
    values = [[of(1), of(0)], [of(1)]]
    found = rows_from_lists(column(values, pa.list_(kind)))

    assert isinstance(found, Ragged)
    assert found.values.dtype == dtype
    assert found.values.tolist() == [1, 0, 1]


def test_rows_of_a_slice_are_those_of_the_slice() -> None:
    found = rows_from_lists(pa.chunked_array([pa.array([[1], [2, 3], [4]])[1:]]))

    assert isinstance(found, Ragged)
    assert found.values.tolist() == [2, 3, 4]
    assert found.lengths.tolist() == [2, 1]


def test_a_missing_log_prob_is_nan() -> None:
    found = rows_from_lists(column([[-1.0, None], [None]]))

    assert isinstance(found, Ragged)
    assert found.values.isnan().tolist() == [False, True, True]


def test_lists_of_lists_are_rows_of_two_dimensions() -> None:
    found = rows_from_lists(column([[[1, 2, 3], [4, 5, 6]], [[7], [8]], []]))
    assert isinstance(found, list)
    first, second, empty = found

    assert torch.equal(first, torch.tensor([[1, 2, 3], [4, 5, 6]]))
    assert torch.equal(second, torch.tensor([[7], [8]]))
    assert empty.shape == (0, 0)


@pytest.mark.parametrize(
    ("values", "kind", "found"),
    [
        ([[1, None], [2]], None, "1 nulls among whole numbers"),
        ([[True, None], [True]], None, "1 nulls among whole numbers"),
        ([["a"], ["b"]], None, "string in place of numbers"),
        ([[1], None], None, "null in 1 of 2 rows"),
        ([[[1], [2, 3]], []], None, "lists of different lengths in one row"),
        ([[[[1]]], []], None, "lists in lists in lists"),
        ([[1 << 63], [1]], pa.list_(pa.uint64()), "Integer value 9223372036854775808"),
    ],
)
def test_rows_of_anything_else_are_refused(
    values: list[Any], kind: pa.DataType | None, found: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=found):
        rows_from_lists(column(values, kind))


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (["a", None], None, ["a", None]),
        (["a", None], pa.dictionary(pa.int8(), pa.string()), ["a", None]),
        ([1, None], pa.int64(), [1, None]),
        ([1, 2], pa.uint8(), [1, 2]),
        ([True, False], None, [True, False]),
        ([Decimal("0.5"), Decimal("1.5")], None, [0.5, 1.5]),
        ([None, None], None, [None, None]),
        ([0, 86400], pa.timestamp("s"), ["1970-01-01 00:00:00", "1970-01-02 00:00:00"]),
    ],
)
def test_one_value_a_row_is_plain(
    values: list[Any], kind: pa.DataType | None, expected: list[Any]
) -> None:
    assert list(plain_column(column(values, kind))) == expected


def test_extension_types_are_what_they_store(tmp_path: Path) -> None:
    ids = pa.FixedShapeTensorArray.from_numpy_ndarray(np.array([[5, 6, 7], [8, 9, 9]]))
    even = {name: [rows[0], rows[0]] for name, rows in COLUMNS.items()}
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({**even, "response_ids": ids}), path)

    assert load(path).require_ids().tolist() == [5, 6, 7, 8, 9, 9]


def test_position_ids_keep_their_shape(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    places = [[[0, 1, 2, 3, 4]] * 4, [[0, 1]] * 4]
    pq.write_table(pa.table({**COLUMNS, "position_ids": places}), path)
    batch = load(path)

    check(batch)
    assert [tuple(row.shape) for row in batch.position_ids] == [(4, 5), (4, 2)]


@pytest.mark.parametrize("name", ["group_ids", "uid", "task"])
def test_groups_are_the_field_or_a_column(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = pa.array(["a", "b"]).dictionary_encode()
    others = {key: rows for key, rows in COLUMNS.items() if key != "group_ids"}
    pq.write_table(pa.table({**others, name: texts}), path)
    batch = load(path)

    assert batch.group_ids == (None if name == "task" else ("a", "b"))
    assert list(batch.sample_columns) == ["turns"] + ["task"] * (name == "task")


def test_list_views_are_no_rows() -> None:
    columns = {**COLUMNS, "values": pa.array([[1], [2]], pa.list_view(pa.int64()))}

    assert load(pa.table(columns)).meta["left_out"] == ["values"]


@given(
    st.lists(
        st.lists(st.floats(width=32, allow_nan=False), max_size=4),
        min_size=1,
        max_size=5,
    ),
    st.data(),
)
def test_rows_come_back_however_they_are_chunked(
    rows: list[list[float]], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    array = pa.array(rows, pa.list_(pa.float32()))
    found = rows_from_lists(pa.chunked_array([array[:cut], array[cut:]]))

    assert isinstance(found, Ragged)
    assert [row.tolist() for row in found.rows()] == rows

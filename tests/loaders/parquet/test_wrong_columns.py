from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet import load_parquet
from tests.loaders.parquet.tables import COLUMNS, FLOATS, FOOTER, INTS, expect, write


def test_the_table_of_these_tests_is_a_batch(tmp_path: Path) -> None:
    batch = load_parquet(write(tmp_path / "ours.parquet"))
    assert (batch.num_samples, batch.num_tokens) == (1, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"response_mask": None},
            (
                "`response_mask`: expected one column of this name; found 0 among"
                " response_ids, rollout_log_probs, old_log_probs."
            ),
        ),
        (
            {"response_ids": pa.array([3])},
            "`response_ids`: expected a list in each row; found int64.",
        ),
        (
            {"response_ids": pa.array([None], INTS)},
            (
                "`response_ids`: expected a list in each row; found"
                " list<element: int32> with 1 nulls."
            ),
        ),
        (
            {"old_log_probs": pa.array([["a", "b"]])},
            "`old_log_probs`: expected a list of numbers in each row; found string.",
        ),
        (
            {"old_log_probs": pa.array([[-1.5, None]], FLOATS)},
            (
                "`old_log_probs`: expected a list of numbers in each row; found float"
                " with 1 nulls."
            ),
        ),
        (
            {"score:ref": pa.array([[-1.5]], FLOATS)},
            "`score:ref`: expected 2 values in row 0, as `response_mask`; found 1.",
        ),
        ({"group_id": pa.array([1])}, "`group_id`: expected strings; found int64."),
        ({"reward": pa.array(["1"])}, "`reward`: expected numbers; found string."),
        (
            {"round_columns": pa.array([[1, 2]])},
            "`round_columns`: expected a list of structs in each row; found int64.",
        ),
        (
            {
                "position_ids": pa.array([[1, 2]], INTS),
                "position_ids_shape": pa.array([[3]], INTS),
            },
            (
                "`position_ids_shape`: expected the shape of each row of"
                " `position_ids`; found other numbers of values."
            ),
        ),
        (
            {"screenshots": pa.array([["a.png"]])},
            (
                "`screenshots`: expected list<item: struct<bytes: binary, path:"
                " string>>, and `screenshot_facts` beside it; found list<element:"
                " string>, None."
            ),
        ),
    ],
)
def test_columns(
    tmp_path: Path, changes: dict[str, pa.Array | None], message: str
) -> None:
    advice = " Save the batch with `rounddiag.save`."
    expect(write(tmp_path / "odd.parquet", **changes), message + advice)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"old_log_probs": pa.array([[1, 2]], INTS)},
            (
                "`old_log_probs`: expected floating-point log-probabilities; found"
                " torch.int32. Pass log-probabilities in nats."
            ),
        ),
        (
            {"response_mask": pa.array([[0, 7]], INTS)},
            (
                "`response_mask`: expected a mask of 0 and 1; found the value 7."
                " Pass the mask itself, not a weight."
            ),
        ),
    ],
)
def test_columns_that_do_not_make_a_batch(
    tmp_path: Path, changes: dict[str, pa.Array | None], message: str
) -> None:
    expect(write(tmp_path / "odd.parquet", **changes), message)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    names = [*COLUMNS, "old_log_probs"]
    table = pa.table([*COLUMNS.values(), COLUMNS["old_log_probs"]], names=names)
    footer = {b"rounddiag": json.dumps(FOOTER)}
    pq.write_table(table.replace_schema_metadata(footer), tmp_path / "twice.parquet")
    with pytest.raises(LoadError, match="expected one column of this name; found 2"):
        load_parquet(tmp_path / "twice.parquet")


def test_a_column_marked_as_json_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "odd.parquet"
    for cells in (["{"], [None], [3]):
        array = pa.array(cells)
        field = pa.field("sample:x", array.type, metadata={b"rounddiag": b"json"})
        table = pa.table(COLUMNS).append_column(field, array)
        footer = {b"rounddiag": json.dumps(FOOTER)}
        pq.write_table(table.replace_schema_metadata(footer), path)
        with pytest.raises(LoadError, match="expected a whole Parquet file as"):
            load_parquet(path)

"""Tables that are in memory already: mappings, frames and data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from rounddiag.loaders import load
from tests.loaders.facts import has
from tests.loaders.table_cases import COLUMNS, check


def arrays() -> dict[str, Any]:
    return {
        name: [np.array(row) if isinstance(row, list) else row for row in rows]
        for name, rows in COLUMNS.items()
    }


def tensors() -> dict[str, Any]:
    return {
        name: [torch.tensor(row) if isinstance(row, list) else row for row in rows]
        for name, rows in COLUMNS.items()
    }


class Rows:
    """Answers as a Hugging Face data set does, of which some rows were selected."""

    def __init__(self, kind: str = "python") -> None:
        self.kind = kind

    def with_format(self, kind: str) -> Rows:
        return Rows(kind)

    def __getitem__(self, rows: slice) -> pa.Table:
        assert (self.kind, rows) == ("arrow", slice(None))
        return pa.table(COLUMNS)


class Frame:
    """Answers as polars and DuckDB do."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return pa.table(COLUMNS).__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "data",
    [
        *(COLUMNS, arrays(), tensors(), pd.DataFrame(COLUMNS), pd.DataFrame(arrays())),
        *(pd.DataFrame(tensors(), index=[7, 3]), pa.table(COLUMNS), Rows(), Frame()),
    ],
    ids=lambda data: type(data).__name__,
)
def test_what_is_in_memory_is_a_batch(data: object) -> None:
    batch = load(data)

    check(batch)
    assert batch.meta["source"] == type(data).__name__


def test_rows_with_names_are_a_batch() -> None:
    rows = [
        dict(zip(COLUMNS, row, strict=True))
        for row in zip(*COLUMNS.values(), strict=True)
    ]

    check(load(rows))


PICTURES = [{"bytes": b"1", "path": "a.png"}, {"bytes": None, "path": "/b.png"}]
PADDED: dict[str, Any] = {
    "responses": torch.tensor([[5, 6], [7, 0]]),
    "response_mask": torch.tensor([[True, True], [True, False]]),
    "attention_mask": torch.tensor([[1, 1], [1, 0]]),
    "rollout_log_probs": np.array([[-1.0, -2.0], [-3.0, 0.0]], dtype=np.float32),
    "old_log_probs": torch.tensor([[-1.5, -2.0], [-3.0, 0.0]]).bfloat16(),
    "turns": torch.tensor([2, 3]),
    "reward_scale": torch.tensor([0.5, 1.0]).bfloat16(),
    "temperature": 0.7,
    "global_steps": torch.tensor(40),
    "seed": 3,
}
EMPTY: dict[str, Any] = {
    **{
        name: [*rows, [] if isinstance(rows[0], list) else rows[0]]
        for name, rows in COLUMNS.items()
    },
    "sample_ids": ["a", "b", "c"],
}
SCORES = [[-1.0] * 6, [-2.0]]
GRID = torch.tensor([[1, 4, 4]])
PIXELS = {"pixel_values": torch.zeros(16, 3 * 2 * 14 * 14), "image_grid_thw": GRID}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "padded tensors and facts of all": (
        PADDED,
        {
            "lengths": [2, 1],
            "step": 40,
            "meta.sampling": {"temperature": 0.7},
            "meta.left_out": ["seed"],
            "sample.turns": [2, 3],
            "sample.reward_scale": [0.5, 1.0],
        },
    ),
    "a missing number in a list is NaN": (
        {**COLUMNS, "rollout_log_probs": [[-1.0, 0.0, None], [-0.5]]},
        {"rollout_log_probs": [-1.0, 0.0, None, -0.5]},
    ),
    "a response without a token": (EMPTY, {"lengths": [3, 1, 0]}),
    "columns of too few values": (
        {**COLUMNS, "group_ids": ["a"], "turns": [2]},
        {"group_ids": None, "meta.left_out": ["turns", "uid"]},
    ),
    "paths of pictures are left alone": (
        {**COLUMNS, "images": [[*PICTURES, None], None]},
        {
            "meta.screenshots": [
                "1 of `images` are not pictures in the file: paths are not opened"
            ]
        },
    ),
    "pixel values": (
        {
            "response_ids": [[5, 9, 9, 9, 9, 6], [8]],
            "response_mask": [[1, 0, 0, 0, 0, 1], [1]],
            "rollout_log_probs": SCORES,
            "old_log_probs": SCORES,
            "multi_modal_inputs": [PIXELS, {}],
        },
        {"pictures": [[(1, 1, (56, 56))], []]},
    ),
}


@pytest.mark.parametrize(("columns", "expected"), CASES.values(), ids=CASES)
def test_columns_are_read(columns: dict[str, Any], expected: dict[str, Any]) -> None:
    has(load(columns), expected)


def test_pictures_come_as_bytes() -> None:
    rows = load({**COLUMNS, "images": [[*PICTURES, None], None]}).images
    assert [[shot.data for shot in row] for row in rows] == [[b"1"], []]  # type: ignore[attr-defined]


def test_numbers_keep_a_dtype_that_torch_has() -> None:
    assert load(PADDED).log_probs("old").dtype == torch.bfloat16
    assert load(EMPTY).require_ids().dtype == torch.int64
    ids = [np.array(row, dtype=np.uint32) for row in COLUMNS["response_ids"]]
    assert load({**COLUMNS, "response_ids": ids}).require_ids().dtype == torch.int64


def test_arrays_that_cannot_be_written_to_are_copied() -> None:
    fields = arrays()
    for row in fields["old_log_probs"]:
        row.flags.writeable = False
    check(load(fields))


def test_columns_may_be_series() -> None:
    check(load(dict(pd.DataFrame(COLUMNS).items())))


def test_a_frame_of_pandas_is_its_parquet_file(tmp_path: Path) -> None:
    when = pd.Timestamp("2026-01-01", tz="UTC")
    columns = {
        "time": [when, pd.NaT],
        "text": ["a", None],
        "integer": pd.array([1, None], dtype="Int64"),
        "share": [np.nan, 0.5],
        "flag": pd.array([None, True], dtype="boolean"),
        "name": pd.Categorical(["b", None]),
        "whole": [1, 2],
    }
    frame = pd.DataFrame({**COLUMNS, **columns}, index=pd.Index([7, 3], name="row"))
    frame.to_parquet(tmp_path / "frame.parquet")

    stored, batch = load(tmp_path / "frame.parquet"), load(frame)

    assert {*columns, "row"} <= stored.sample_columns.keys()
    assert [*batch.sample_columns] == [*stored.sample_columns]
    for name, values in stored.sample_columns.items():
        assert repr(batch.sample_columns[name]) == repr(values)


def test_a_frame_keeps_what_no_parquet_file_holds() -> None:
    batch = load(pd.DataFrame({**tensors(), "time": pd.Timestamp("2026-01-01")}))

    check(batch)
    assert all("2026-01-01" in value for value in batch.sample_columns["time"])

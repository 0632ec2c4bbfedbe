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


def test_padded_tensors_and_facts_of_all_are_known() -> None:
    batch = load(
        {
            "responses": torch.tensor([[5, 6], [7, 0]]),
            "response_mask": torch.tensor([[True, True], [True, False]]),
            "attention_mask": torch.tensor([[1, 1], [1, 0]]),
            "rollout_log_probs": np.array(
                [[-1.0, -2.0], [-3.0, 0.0]], dtype=np.float32
            ),
            "old_log_probs": torch.tensor([[-1.5, -2.0], [-3.0, 0.0]]).bfloat16(),
            "turns": torch.tensor([2, 3]),
            "reward_scale": torch.tensor([0.5, 1.0]).bfloat16(),
            "temperature": 0.7,
            "global_steps": torch.tensor(40),
            "seed": 3,
        }
    )

    assert batch.lengths.tolist() == [2, 1]
    assert batch.log_probs("old").dtype == torch.bfloat16
    assert batch.step == 40
    assert batch.meta["sampling"] == {"temperature": 0.7}
    assert batch.meta["left_out"] == ["seed"]
    assert batch.sample_columns["turns"].tolist() == [2, 3]
    assert batch.sample_columns["reward_scale"].tolist() == [0.5, 1.0]


def test_arrays_that_cannot_be_written_to_are_copied() -> None:
    fields = arrays()
    for row in fields["old_log_probs"]:
        row.flags.writeable = False

    check(load(fields))


def test_unsigned_ids_become_signed() -> None:
    ids = [np.array(row, dtype=np.uint32) for row in COLUMNS["response_ids"]]

    assert load({**COLUMNS, "response_ids": ids}).require_ids().dtype == torch.int64


def test_a_missing_number_in_a_list_is_nan() -> None:
    batch = load({**COLUMNS, "rollout_log_probs": [[-1.0, 0.0, None], [-0.5]]})

    assert batch.log_probs("rollout").isnan().tolist() == [False, False, True, False]


def test_a_response_without_a_token_keeps_its_dtype() -> None:
    empty = {
        name: [*rows, [] if isinstance(rows[0], list) else rows[0]]
        for name, rows in COLUMNS.items()
    }
    batch = load({**empty, "sample_ids": ["a", "b", "c"]})

    assert batch.lengths.tolist() == [3, 1, 0]
    assert batch.require_ids().dtype == torch.int64


def test_columns_may_be_series() -> None:
    check(load(dict(pd.DataFrame(COLUMNS).items())))


def test_a_column_of_too_few_values_is_named() -> None:
    batch = load({**COLUMNS, "group_ids": ["a"], "turns": [2]})

    assert batch.group_ids is None
    assert batch.meta["left_out"] == ["turns", "uid"]


def test_pictures_come_as_bytes_and_paths_are_left_alone() -> None:
    pictures = [{"bytes": b"1", "path": "a.png"}, {"bytes": None, "path": "/b.png"}]
    batch = load({**COLUMNS, "images": [[*pictures, None], None]})

    assert [[shot.data for shot in row] for row in batch.images] == [[b"1"], []]  # type: ignore[attr-defined]
    note = ["1 of `images` are not pictures in the file: paths are not opened"]
    assert batch.meta["screenshots"] == note


def test_pixel_values_in_memory_are_screenshots() -> None:
    pixels = torch.zeros(16, 3 * 2 * 14 * 14)
    inputs = [{"pixel_values": pixels, "image_grid_thw": torch.tensor([[1, 4, 4]])}, {}]
    ids = [[5, 9, 9, 9, 9, 6], [8]]
    mask = [[1, 0, 0, 0, 0, 1], [1]]
    scores = [[-1.0] * 6, [-2.0]]
    batch = load(
        {
            "response_ids": ids,
            "response_mask": mask,
            "rollout_log_probs": scores,
            "old_log_probs": scores,
            "multi_modal_inputs": inputs,
        }
    )

    assert [[(shot.position, shot.size) for shot in row] for row in batch.images] == [
        [(1, (56, 56))],
        [],
    ]


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

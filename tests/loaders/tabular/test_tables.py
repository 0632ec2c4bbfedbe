"""Tables of others: Parquet, Arrow, JSON lines, and columns by any name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch

from rounddiag.loaders import load
from tests.loaders.table_cases import COLUMNS, check, named_otherwise

Columns = dict[str, list[Any]]


def write_parquet(columns: Columns, path: Path) -> None:
    pq.write_table(pa.table(columns), path)


def write_in_row_groups(columns: Columns, path: Path) -> None:
    pq.write_table(pa.table(columns), path, row_group_size=1)


def write_frame(columns: Columns, path: Path) -> None:
    pd.DataFrame(columns).to_parquet(path)


def write_feather(columns: Columns, path: Path) -> None:
    pyarrow.feather.write_feather(pa.table(columns), str(path))


def write_stream(columns: Columns, path: Path) -> None:
    table = pa.table(columns)
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as to,
    ):
        to.write_table(table, max_chunksize=1)


def write_json_lines(columns: Columns, path: Path) -> None:
    rows = zip(*columns.values(), strict=True)
    lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    path.write_text("\n".join(lines) + "\n")


def write_pt(columns: Columns, path: Path) -> None:
    rows = {name: _tensors(values) for name, values in columns.items()}
    torch.save(rows, path)


def _tensors(values: list[Any]) -> list[Any]:
    return [torch.tensor(v) if isinstance(v, list) else v for v in values]


WRITERS = [
    *(write_parquet, write_in_row_groups, write_frame, write_feather),
    *(write_stream, write_json_lines, write_pt),
]


@pytest.mark.parametrize("write", WRITERS)
def test_a_table_of_rows_opens(
    write: Callable[[Columns, Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "table.dat"
    write(COLUMNS, path)

    check(load(path))


@pytest.mark.parametrize("write", WRITERS)
def test_columns_may_have_names_of_their_own(
    write: Callable[[Columns, Path], None], tmp_path: Path
) -> None:
    path = tmp_path / "table.dat"
    write(named_otherwise(), path)
    names = {name: f"my_{name}" for name in COLUMNS if name != "turns"}

    check(load(path, columns=names))


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_padded_tensors_may_have_names_of_their_own(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    content = {
        "ids": np.array([[5, 6, 7], [8, 0, 0]]),
        "attention_mask": np.array([[1, 1, 1], [1, 0, 0]]),
        "wrote": np.array([[1, 0, 1], [1, 0, 0]]),
        "sampler": np.array([[-1.0, 0.0, -2.0], [-0.5, 0.0, 0.0]]),
        "trainer": np.array([[-1.5, -9.0, -2.0], [-0.25, 0.0, 0.0]]),
    }
    if kind == "npz":
        np.savez(path, **content)  # type: ignore[arg-type]
    else:
        tensors = {name: torch.from_numpy(value) for name, value in content.items()}
        safetensors.torch.save_file(tensors, path)
    batch = load(
        path,
        columns={
            "response_ids": "ids",
            "response_mask": "wrote",
            "rollout_log_probs": "sampler",
            "old_log_probs": "trainer",
        },
    )

    assert batch.lengths.tolist() == [3, 1]
    assert batch.log_probs("old").tolist() == [-1.5, -9.0, -2.0, -0.25, 0.0, 0.0]
    assert batch.rounds.num_tokens.tolist() == [1, 1, 1]


def test_a_mapped_column_hides_one_of_that_name() -> None:
    columns = {**COLUMNS, "old_log_probs": [[0.0] * 3, [0.0]]}
    content = {**columns, "right": COLUMNS["old_log_probs"]}

    check(load(content, columns={"old_log_probs": "right"}))


def test_a_mapped_column_goes_before_verl_s_name_for_it() -> None:
    content = {**COLUMNS, "responses": [[0, 0, 0], [0]], "uid": ["x", "y"]}

    check(
        load(
            content, columns={"response_ids": "response_ids", "group_ids": "group_ids"}
        )
    )


def test_what_has_no_place_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    others: Columns = {
        "values": [[0.5, 0.5], [0.5]],
        "per_token": [[0.5, 0.5, 0.25], [0.5]],
        "picture": [b"1", b"2"],
        "nested": [{"a": 1}, {"a": 2}],
    }
    write_parquet({**COLUMNS, **others}, path)

    batch = load(path)
    assert batch.meta["left_out"] == ["nested", "picture", "values"]
    assert batch.token_columns["per_token"].tolist() == [0.5, 0.5, 0.25, 0.5]


def test_a_table_without_rows_is_an_empty_batch(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(COLUMNS)[:0], path)

    batch = load(path)
    assert (len(batch), batch.num_tokens) == (0, 0)

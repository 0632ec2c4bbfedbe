"""Pickles and torch files of plain lists, arrays and records."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.loaders import load
from tests.loaders.table_cases import COLUMNS, check


def write_pickle(data: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(data))


def write_torch(data: object, path: Path) -> None:
    torch.save(data, path)


def arrays(values: list[Any]) -> Any:
    """Return rows as arrays, and names as they are."""
    return [np.array(v) if isinstance(v, list) else v for v in values]


def rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    whole = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in whole]


ARRAYS = {name: arrays(values) for name, values in COLUMNS.items()}


@pytest.mark.parametrize("write", [write_pickle, write_torch])
@pytest.mark.parametrize("data", [COLUMNS, ARRAYS, rows(COLUMNS), rows(ARRAYS)])
def test_lists_arrays_and_records_open_as_in_memory(
    write: Callable[[object, Path], None], data: object, tmp_path: Path
) -> None:
    path = tmp_path / "a.dat"
    write(data, path)

    check(load(path))


def test_an_array_of_arrays_opens(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    ids = np.empty(2, dtype=object)
    ids[:] = arrays(COLUMNS["response_ids"])
    write_pickle({**COLUMNS, "response_ids": ids}, path)

    check(load(path))


def test_records_of_tensors_stay_in_the_file_until_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    tensors = {
        name: [torch.tensor(v) if isinstance(v, list) else v for v in values]
        for name, values in COLUMNS.items()
    }
    write_torch(rows(tensors), path)

    check(load(path))

"""Columns of samples and rounds that are read some rows after the other."""

from __future__ import annotations

import pytest

from rounddiag.loaders.parquet import load_parquet, reader


@pytest.mark.parametrize("size", [1, 100_000])
def test_parts_are_the_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "sample_data/healthy.parquet"
    whole = load_parquet(path)
    monkeypatch.setattr(reader, "_PART", size)
    read = load_parquet(path)
    for name in ("sample_columns", "round_columns"):
        columns, expected = getattr(read, name), getattr(whole, name)
        assert {k: v.dtype for k, v in columns.items()} == {
            k: v.dtype for k, v in expected.items()
        }
        assert {k: v.tolist() for k, v in columns.items()} == {
            k: v.tolist() for k, v in expected.items()
        }
    assert (read.sample_ids, read.group_ids) == (whole.sample_ids, whole.group_ids)

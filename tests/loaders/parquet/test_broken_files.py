"""Broken, foreign and hostile files: only a LoadError, and it says what is wrong."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders.parquet import load_parquet, save


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (
            {"a": [1]},
            "`rounddiag`: expected this entry in the metadata, as `round",
        ),
        (None, "expected a whole Parquet file as .* FileNotFoundError: "),
    ],
)
def test_a_file_of_another_program_or_none(
    columns: dict[str, list[int]] | None, found: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.parquet"
    if columns is not None:
        pq.write_table(pa.table(columns), path)
    with pytest.raises(LoadError, match=f"^{path}: {found}"):
        load_parquet(path)


def test_a_file_that_is_cut_off(full: Batch, tmp_path: Path) -> None:
    path = tmp_path / "batch.parquet"
    save(full, path)
    whole = path.read_bytes()
    for percent in range(100):
        path.write_bytes(whole[: len(whole) * percent // 100])
        with pytest.raises(LoadError, match="expected a whole Parquet file as"):
            load_parquet(path)


@settings(
    max_examples=min(60, settings().max_examples),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_a_flipped_bit_gives_a_batch_or_a_load_error(
    data: st.DataObject, full: Batch, tmp_path: Path
) -> None:
    whole, path = tmp_path / "whole.parquet", tmp_path / "batch.parquet"
    if not whole.exists():
        save(full, whole)
    content = bytearray(whole.read_bytes())
    place = data.draw(st.integers(4, len(content) - 9))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with suppress(LoadError):
        save(load_parquet(path), tmp_path / "again.parquet")

"""Many columns, entries and keys; `tests.benchmarks.wide_files` prints the times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rounddiag import plot_rounds, round_summary
from rounddiag.loaders import load
from rounddiag.loaders.tabular import in_memory
from tests.loaders.wide_files import WRITERS, of_other_keys, of_rounds, write_lines

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 300
WIDE = [name for name in WRITERS if not name.startswith(("other_keys", "rounds"))]


@pytest.mark.parametrize("name", WIDE)
def test_every_column_of_a_wide_file_is_read(name: str, tmp_path: Path) -> None:
    WRITERS[name](COUNT, tmp_path / name)
    columns = load(tmp_path / name).sample_columns
    assert [columns[f"fact_{i}"].tolist() for i in (0, 299)] == [[0, 1], [299, 300]]


def test_keys_of_single_rows_are_counted_where_they_are_most_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_memory, "_SMALL", 0)
    path = tmp_path / "a.jsonl"
    write_lines(of_other_keys(400), path)  # 2,000 values: 64 * 2,000 / 400 columns
    batch = load(path)
    assert len(batch.sample_columns) == 320 - 4
    assert batch.meta["left_out"] == ["84 columns with few values"]


def test_many_rounds_are_summarised_and_drawn() -> None:
    batch = of_rounds(100_000)
    assert len(round_summary(batch)) == 100_000
    figure = plot_rounds(batch)
    assert max(len(trace.x) for trace in figure.data) <= 2001
    assert "drawn: one round in 50" in figure.layout.title.text

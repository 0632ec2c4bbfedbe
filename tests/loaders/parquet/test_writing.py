from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.errors import BatchError, LoadError, OutputError
from rounddiag.export import report
from rounddiag.loaders import export_rescore, load
from rounddiag.loaders.parquet import load_parquet, save
from rounddiag.vision import EncodedScreenshot
from tests.loaders.values import objects, png

if TYPE_CHECKING:
    from collections.abc import Callable


def test_one_row_a_sample_under_the_names_of_the_fields(
    full: Batch, tmp_path: Path
) -> None:
    save(full, tmp_path / "batch.parquet")
    table = pq.read_table(tmp_path / "batch.parquet")
    assert table.num_rows == 3
    assert table.column_names[:7] == [
        *("sample_id", "group_id", "reward", "response_ids", "response_mask"),
        *("rollout_log_probs", "old_log_probs"),
    ]
    assert table["response_ids"].to_pylist() == [[5, 6, 7], [], [8, 151655]]
    assert table["sample:status"].to_pylist() == ["done", "", "cut off"]
    assert table["score:ref"].to_pylist() == [[-0.75] * 3, [], [-0.75] * 2]
    assert table["round_columns"].to_pylist()[2][0]["version"] == 7


def test_the_layout_that_was_measured(full: Batch, tmp_path: Path) -> None:
    save(full, tmp_path / "batch.parquet")
    group = pq.ParquetFile(tmp_path / "batch.parquet").metadata.row_group(0)
    found = {
        column.path_in_schema: (column.compression, column.encodings)
        for column in map(group.column, range(group.num_columns))
    }
    floats = {
        f"{name}.list.element"
        for name in (
            *("rollout_log_probs", "old_log_probs", "entropy", "advantages"),
            *("score:ref", "score:a b.c"),
        )
    }
    codecs = {path: codec for path, (codec, _) in found.items()}
    assert codecs == {path: "LZ4" if path in floats else "ZSTD" for path in found}
    assert "BYTE_STREAM_SPLIT" in found["old_log_probs.list.element"][1]
    assert "BYTE_STREAM_SPLIT" in found["score:a b.c.list.element"][1]
    assert "PLAIN" in found["response_ids.list.element"][1]
    assert "DELTA_BINARY_PACKED" not in found["response_ids.list.element"][1]
    assert "DELTA_BINARY_PACKED" in found["position_ids.list.element"][1]


@pytest.mark.parametrize(
    ("length", "groups", "with_pictures"),
    [(100, 1, 1), (9000, 1, 2), (40_000, 2, 6), (140_000, 6, 6)],
)
def test_long_samples_and_pictures_have_row_groups_of_their_own(
    tmp_path: Path, length: int, groups: int, with_pictures: int
) -> None:
    ones = torch.ones(6, length)
    batch = Batch.from_padded(
        response_ids=ones.int(),
        response_mask=ones,
        rollout_log_probs=-ones,
        old_log_probs=-ones,
    )
    shot = EncodedScreenshot(data=png("red"), round=0)
    for images, expected in ((None, groups), (((shot,),) * 6, with_pictures)):
        save(replace(batch, images=images), tmp_path / "long.parquet")
        assert pq.ParquetFile(tmp_path / "long.parquet").num_row_groups == expected


def test_a_file_is_replaced_only_by_a_whole_one(
    full: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "batch.parquet"
    save(full, path)
    save(full, path)
    assert [*tmp_path.iterdir()] == [path]
    before = path.read_bytes()

    def half(partial: Path) -> None:
        partial.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rounddiag.loaders.parquet.writer.write_digest", half)
    with pytest.raises(OutputError, match=r"batch.parquet: .*No space left.* MB free"):
        save(full, path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [
        ("batch.parquet", before)
    ]


DEEP: object = 1
for _ in range(101):
    DEEP = [DEEP]
OF_FIRST = {"sample": np.zeros(3, int), "round": np.arange(3)}
ROUNDS = {"sample": np.array([3, 0, 1]), "round": np.array([0, 0, 1])}
NO_DTYPE = "`sample:odd`: expected a dtype that Parquet has; found"
# What a batch has that no file can hold, and what the message must say.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "sets": (
        {"sample_columns": {"odd": np.fromiter([{1}, {2}, {3}], dtype=object)}},
        "`sample:odd`: expected numbers, texts, and lists and dictionaries of them;"
        " found an object of type set.",
    ),
    "complex numbers": (
        {"sample_columns": {"odd": np.zeros(3, dtype=np.complex64)}},
        f"{NO_DTYPE} complex64 of shape (3,).",
    ),
    "records": (
        {"sample_columns": {"odd": np.zeros(3, dtype=[("a", "i4")])}},
        f"{NO_DTYPE} [('a', '<i4')] of shape (3,).",
    ),
    "rows of nothing": (
        {"sample_columns": {"odd": np.zeros((3, 0))}},
        f"{NO_DTYPE} float64 of shape (3, 0).",
    ),
    "bytes of a round": (
        {"round_columns": {**OF_FIRST, "action": objects("a", b"b", None)}},
        "`action`: expected numbers, texts, and lists and dictionaries of them; found"
        " an object of type bytes.",
    ),
    "rounds of no sample": (
        {"round_columns": ROUNDS},
        "`round_columns`: expected a `sample` from 0 to 2 in each row; found values"
        " from 0 to 3.",
    ),
    "deep meta": (
        {"sample_columns": {}, "meta": {"deep": DEEP}},
        "`meta`: expected numbers, texts, and lists and dictionaries of them; found"
        " values nested in more than 100 levels",
    ),
    "an object in meta": (
        {"meta": {"config": object()}},
        "`meta`: expected numbers, texts, and lists and dictionaries of them; found an"
        " object of type object.",
    ),
}


@pytest.mark.parametrize(("parts", "message"), REFUSED.values(), ids=REFUSED)
def test_what_a_file_cannot_hold_is_named(
    full: Batch, tmp_path: Path, parts: dict[str, Any], message: str
) -> None:
    with pytest.raises(BatchError, match=f"^{re.escape(message)}"):
        save(replace(full, **parts), tmp_path / "batch.parquet")
    assert not (tmp_path / "batch.parquet").exists()


def test_lone_surrogates_in_names_are_escaped(full: Batch, tmp_path: Path) -> None:
    odd = replace(
        full,
        group_ids=("a", "b", "\ud800"),
        scores={"\ud800": full.log_probs("old")},
        sample_columns={"x\udfff": np.arange(3)},
    )
    save(odd, tmp_path / "batch.parquet")
    for batch in (odd, load_parquet(tmp_path / "batch.parquet")):
        assert batch.group_ids == ("a", "b", "\\ud800")
        assert [*batch.scores] == ["\\ud800"]
        assert [*batch.sample_columns] == ["x\\udfff"]


@pytest.mark.usefixtures("drawn_once")
@pytest.mark.parametrize("write", [save, report, export_rescore])
def test_only_the_last_folder_of_a_path_is_made(
    write: Callable[[Batch, Path], object], full: Batch, tmp_path: Path
) -> None:
    batch = load("sample_data/healthy.parquet")[:2] if write is not save else full
    path = tmp_path / "a" / "b" / "c"
    parent = path.parent.parent if write is not export_rescore else path.parent
    message = f"expected a folder in one that exists; found no folder {parent}"
    with pytest.raises(LoadError, match=re.escape(message)):
        write(batch, path)
    assert [*tmp_path.iterdir()] == []
    parent.mkdir(parents=True)
    write(batch, path)
    assert path.exists()


def test_a_report_is_refused_before_its_data_is_read(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="expected a folder in one that exists"):
        report(tmp_path / "nothing.parquet", tmp_path / "a" / "b" / "page.html")

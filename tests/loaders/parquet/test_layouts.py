"""Files of the first layout still open; marks that lie are refused."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.loaders.parquet import load_parquet, save
from tests.loaders.facts import has
from tests.loaders.parquet.tables import write_table
from tests.loaders.values import png

FIRST = Path("tests/data/rounddiag-0.1.0_layout-1.parquet")
SECOND = Path("tests/data/rounddiag-0.1.0_layout-2.parquet")


def test_files_of_former_layouts_open(tmp_path: Path) -> None:
    first = load_parquet(FIRST)
    expected = {
        "advantages": [-1.5] * 5,
        "sample.status": ["done", "", "cut off"],
        "sample.mixed": [{"a": [1, None]}, 2.5, "text"],
        "round.request": ["a", "b", "c"],
        "meta.source": str(FIRST),
    }
    has(first, expected)
    assert [tuple(row.shape) for row in first.position_ids] == [(4, 5), (4, 0), (5,)]
    places = [[(shot.round, shot.position) for shot in row] for row in first.images]
    assert places == [[(0, None), (None, None)], [], [(0, None)]]
    assert first.images[0][1].png() == png("blue")
    save(first, tmp_path / "second.parquet")
    again = load_parquet(tmp_path / "second.parquet")
    assert again.images[0][0].png() == png("red")
    assert again.meta["original_source"] == str(FIRST)
    expected = {
        "token_columns": {},
        "lengths": [4, 3],
        "response_mask": [1, 1, 0, 1, 0, 1, 1],
        "old_log_probs": [-1.5, -2, 0, -3, 0, -0.5, -0.5],
        "score.ref": [-1, -1, 0, -1, 0, -1, -1],
        "round.tool": ["x", "y", "z"],
        "meta": {"mask_source": "response_mask", "source": str(SECOND)},
    }
    has(load_parquet(SECOND), expected)


def test_a_column_of_a_later_revision_is_left_out_by_name(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    table = pq.read_table(SECOND)
    later = table.append_column("episodes", pa.array([[1], [2]]))
    footer = table.schema.metadata[b"rounddiag"].replace(b"{", b'{"revision": 99, ', 1)
    path = tmp_path / "later.parquet"
    metadata = {**table.schema.metadata, b"rounddiag": footer}
    pq.write_table(later.replace_schema_metadata(metadata), path)
    assert load_parquet(path).meta["left_out"] == ["episodes"]
    assert load_parquet(path).rewards.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("healthy", "458f8caef66be4d5809a8ec60e70db0025a013f4a91209e44478efb4488f80db"),
        ("stale", "1c7a387b18abe31a90c7b377a1192d8a244b54a2e8f83bb2ef2a849647111da2"),
    ],
)
def test_the_sample_data_open_unchanged(name: str, digest: str) -> None:
    path = Path(f"sample_data/{name}.parquet")
    batch = rd.load(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert batch.images[0][0].size == (448, 336)


def test_texts_of_absurd_width_stay_objects(tmp_path: Path) -> None:
    marks = {"rounddiag": "objects", "rounddiag.dtype": "<U100000000"}
    field = pa.field("sample:x", pa.string(), metadata=marks)
    path = write_table(tmp_path / "wide.parquet", {field: pa.array(["a"])})
    column = load_parquet(path).sample_columns["x"]
    assert column.dtype == np.dtype(object)
    assert column.tolist() == ["a"]


def test_numbers_of_pictures_must_agree(full: Batch, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "batch.parquet"
    save(full, path)
    table = pq.read_table(path)
    index = table.column_names.index("screenshot_facts")
    facts = pa.array([[{"round": 0}], [], []], table.schema.field(index).type)
    pq.write_table(table.set_column(index, table.schema.field(index), facts), path)
    message = (
        f"{path}: `screenshot_facts`: expected as many entries a row as `screenshots`"
        " has; found other numbers of them. Save the batch with `rounddiag.save`."
    )
    with pytest.raises(rd.errors.LoadError, match=f"^{re.escape(message)}$"):
        load_parquet(path)

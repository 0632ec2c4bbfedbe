"""Small files that claim to be huge end in a LoadError, in little memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders.parquet import load_parquet, save
from rounddiag.loaders.parquet.size_guard import (
    Compact,
    check_size,
    chunks_of,
    pages_of,
)
from tests.loaders.parquet.tables import COLUMNS, FOOTER, write

if TYPE_CHECKING:
    from pathlib import Path

MANY = 10_000_000
LOADED = """
import resource, sys
from rounddiag.errors import LoadError
from rounddiag.loaders.parquet import load_parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load_parquet(sys.argv[1])
except LoadError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def load_elsewhere(path: Path) -> tuple[str, int]:
    """Load in a process of its own; return the error and the bytes that it took."""
    command = [sys.executable, "-c", LOADED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *error, kilobytes = done.stdout.splitlines()
    return "\n".join(error), 1024 * int(kilobytes)


def zeros(dtype: str) -> pa.Array:
    values = pa.array(np.zeros(MANY, dtype))
    return pa.ListArray.from_arrays(pa.array([0, MANY], pa.int32()), values)


def write_bomb(path: Path, codec: str, dictionary: bool) -> None:
    columns = {
        "response_ids": zeros("int32"),
        "response_mask": zeros("bool"),
        "rollout_log_probs": zeros("float32"),
        "old_log_probs": zeros("float32"),
    }
    table = pa.table(columns).replace_schema_metadata({"rounddiag": json.dumps(FOOTER)})
    pq.write_table(table, path, compression=codec, use_dictionary=dictionary)


@pytest.mark.parametrize(
    ("codec", "dictionary"), [("zstd", True), ("zstd", False), ("snappy", True)]
)
def test_a_bomb_of_numbers_is_refused(
    tmp_path: Path, codec: str, dictionary: bool
) -> None:
    path = tmp_path / "bomb.parquet"
    write_bomb(path, codec, dictionary)
    assert path.stat().st_size < 500_000
    message, used = load_elsewhere(path)
    assert message.startswith(f"{path}: expected at most 150000000 bytes of values in")
    assert used < 50_000_000


def test_the_message_of_a_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.parquet"
    write_bomb(path, "zstd", dictionary=True)
    expected = re.escape(
        f"{path}: expected at most 150000000 bytes of values in {path.stat().st_size}"
        " bytes of file; found more. It is made to exhaust memory; save a real batch in"
        " parts."
    )
    with pytest.raises(LoadError, match=f"^{expected}$"):
        load_parquet(path)


@pytest.mark.parametrize("encoding", ["RLE_DICTIONARY", "DELTA_BYTE_ARRAY"])
def test_a_bomb_of_one_long_text_is_refused(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "bomb.parquet"
    table = pa.table({"sample_id": ["x" * 20_000] * 10_000})
    table = table.replace_schema_metadata({"rounddiag": json.dumps(FOOTER)})
    if encoding == "RLE_DICTIONARY":
        pq.write_table(table, path)
    else:
        given = {"sample_id": encoding}
        pq.write_table(table, path, use_dictionary=False, column_encoding=given)
    assert path.stat().st_size < 200_000
    message, used = load_elsewhere(path)
    assert message.startswith(f"{path}: expected at most 150000000 bytes of values in")
    assert used < 50_000_000


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_many_short_texts_of_a_dictionary_are_no_bomb(
    tmp_path: Path, codec: str
) -> None:
    path = tmp_path / "texts.parquet"
    table = pa.table({"sample:uid": [f"{number:036}" for number in range(20_000)]})
    pq.write_table(table, path, compression=codec)
    group = pq.ParquetFile(path).metadata.row_group(0)
    assert group.column(0).has_dictionary_page
    check_size(path, lambda _: True)


def test_what_is_let_through_stays_within_the_limit(tmp_path: Path) -> None:
    """The largest batch of zeros that opens, and what opening it takes."""
    path = tmp_path / "zeros.parquet"
    num = 4_500_000
    batch = Batch.from_rows(
        response_ids=[torch.zeros(num, dtype=torch.int64)],
        response_mask=[torch.zeros(num, dtype=torch.int64)],
        rollout_log_probs=[torch.zeros(num)],
        old_log_probs=[torch.zeros(num)],
    )
    save(batch, path)
    assert path.stat().st_size < 100_000
    message, used = load_elsewhere(path)
    assert message == ""
    assert used < 200_000_000


def test_a_large_batch_of_few_generated_tokens_opens(tmp_path: Path) -> None:
    """One token in twenty is generated; the others repeat an id and have no number."""
    path = tmp_path / "few.parquet"
    shape = (256, 25_000)
    rng = np.random.default_rng(0)
    mask = np.tile(np.arange(shape[1]) % 2000 < 100, (shape[0], 1))
    log_probs = np.log1p(-rng.random(shape, dtype=np.float32))
    fields = {
        "response_ids": np.where(mask, rng.integers(0, 150_000, shape), 151_655),
        "response_mask": mask.astype(np.int64),
        "rollout_log_probs": np.where(mask, log_probs, np.float32(0)),
        "old_log_probs": np.where(mask, log_probs * np.float32(1.01), np.float32(0)),
    }
    save(Batch.from_padded(**{k: torch.from_numpy(v) for k, v in fields.items()}), path)
    positions = mask.size
    assert 32 * positions > 150_000_000  # what the rule lets through in any case
    assert 40 * path.stat().st_size < 32 * positions
    assert load_parquet(path).num_tokens == mask.sum()


@pytest.mark.parametrize("nested", [0, 1], ids=["samples", "screenshots"])
def test_a_bomb_of_many_small_objects_is_refused(tmp_path: Path, nested: int) -> None:
    path = tmp_path / "bomb.parquet"
    many = pa.nulls(400_000, pa.int32())
    offsets = pa.array(np.arange(400_001, dtype=np.int32))
    if nested:
        offsets = pa.array([0, 400_000], pa.int32())
    pictures = pa.StructArray.from_arrays(
        [pa.nulls(400_000, pa.binary()), pa.nulls(400_000, pa.string())],
        ["bytes", "path"],
    )
    names = ["round", "position", "seen_width", "seen_height"]
    facts = pa.StructArray.from_arrays([many] * 4, names)
    full = pa.ListArray.from_arrays(offsets, many.fill_null(0))
    write(
        path,
        None,
        response_ids=full,
        response_mask=full,
        rollout_log_probs=full.cast(pa.list_(pa.float32())),
        old_log_probs=full.cast(pa.list_(pa.float32())),
        screenshots=pa.ListArray.from_arrays(offsets, pictures),
        screenshot_facts=pa.ListArray.from_arrays(offsets, facts),
    )
    assert path.stat().st_size < 100_000
    message, used = load_elsewhere(path)
    assert message.startswith(f"{path}: expected at most 150000000 bytes of values in")
    assert used < 100_000_000


def test_pictures_that_are_bombs_are_refused(full: Batch, tmp_path: Path) -> None:
    path = tmp_path / "batch.parquet"
    save(full, path)
    table = pq.read_table(path)
    index = table.column_names.index("screenshots")
    field = table.schema.field(index)
    picture = {"bytes": b"\0" * 60_000_000, "path": None}
    pictures = pa.array([[picture] * 2, [], [picture]], field.type)
    table = table.set_column(index, field, pictures)
    pq.write_table(table, path, compression="zstd")
    with pytest.raises(LoadError, match="expected at most 150000000 bytes of values"):
        load_parquet(path)


def test_the_pages_say_what_the_footer_says(full: Batch, tmp_path: Path) -> None:
    path = tmp_path / "batch.parquet"
    save(full, path)
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    with path.open("rb") as stream:
        chunks = list(chunks_of(stream))
        pages = [list(pages_of(stream, chunk)) for chunk in chunks]
    assert [chunk.path for chunk in chunks] == [c.path_in_schema for c in columns]
    assert [sum(page.num_values for page in found) for found in pages] == [
        column.num_values for column in columns
    ]
    is_text = [column.physical_type.endswith("BYTE_ARRAY") for column in columns]
    assert [chunk.type in {6, 7} for chunk in chunks] == is_text


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", IndexError),
        (b"\x15", IndexError),
        (b"\x15" + b"\x80" * 20, ValueError),
        (b"\x1b\x00", ValueError),
        (b"\x1c" * 100_000, RecursionError),
        (b"\x19\xfc" + b"\xff" * 8 + b"\x7f", IndexError),
    ],
    ids=["nothing", "cut off", "long number", "a map", "deep", "a long list"],
)
def test_hostile_structs_end(content: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        Compact(content).struct()


def test_a_header_of_a_page_that_is_none_is_a_load_error(tmp_path: Path) -> None:
    path = write(tmp_path / "odd.parquet", **COLUMNS)
    content = bytearray(path.read_bytes())
    content[4:8] = b"\xff" * 4
    path.write_bytes(content)
    with pytest.raises(LoadError, match="found ValueError: a field of kind 15"):
        load_parquet(path)

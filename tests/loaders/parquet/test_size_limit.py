"""Small files that expand to far more than their size, and honest ones that compress.

The tests lower what any file may hold, so that their files stay small.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.parquet import reader, save
from tests.loaders.parquet.tables import FOOTER

if TYPE_CHECKING:
    from pathlib import Path

MANY = 1_000_000
OWN = {"rounddiag": json.dumps(FOOTER)}
SMALL = 3_000_000


def zeros(dtype: str) -> pa.Array:
    values = pa.array(np.zeros(MANY, dtype))
    return pa.ListArray.from_arrays(pa.array([0, MANY], pa.int32()), values)


def write_bomb(path: Path, codec: str, metadata: dict[str, str] | None) -> None:
    """Write 12 MB of zeros in a few kB."""
    columns = {
        "response_ids": zeros("int32"),
        "response_mask": zeros("bool"),
        "rollout_log_probs": zeros("float32"),
        "old_log_probs": zeros("float32"),
    }
    table = pa.table(columns).replace_schema_metadata(metadata)
    pq.write_table(table, path, compression=codec)
    assert 64 * path.stat().st_size < SMALL


def expect_refusal(path: Path, most: int) -> None:
    """Open a file of 4 MB a column, less for the mask, with a limit of `most` bytes."""
    with pytest.raises(LoadError) as caught:
        load(path)
    size = path.stat().st_size
    found = re.fullmatch(
        f"{re.escape(str(path))}: expected at most {most} bytes of values in {size}"
        r" bytes of file; found (\d+) or more\. The file expands to far more than its"
        r" size\. If it is genuine, save it in smaller parts\.",
        str(caught.value),
    )
    assert found
    assert most < int(found[1]) < most + 5_000_000


@pytest.mark.parametrize("metadata", [OWN, None], ids=["own", "foreign"])
@pytest.mark.parametrize("codec", ["zstd", "snappy"])
def test_a_file_that_expands_is_refused_after_the_column_that_is_too_much(
    codec: str,
    metadata: dict[str, str] | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "_SMALL", SMALL)
    path = tmp_path / "bomb.parquet"
    write_bomb(path, codec, metadata)
    expect_refusal(path, SMALL)


def test_columns_count_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.parquet"
    write_bomb(path, "zstd", OWN)
    monkeypatch.setattr(reader, "_SMALL", 11_000_000)
    expect_refusal(path, 11_000_000)
    monkeypatch.setattr(reader, "_SMALL", 13_000_000)
    assert load(path).num_tokens == 0


def test_a_large_batch_of_few_generated_tokens_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token in twenty is generated; the others repeat an id and have no number."""
    monkeypatch.setattr(reader, "_SMALL", 0)
    path = tmp_path / "few.parquet"
    shape = (16, 25_000)
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
    assert load(path).num_tokens == mask.sum()

"""Where the tokenizer is found, and that a file cannot lead us elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rounddiag._version import __version__
from rounddiag.batch import Batch
from rounddiag.loaders.parquet import load_parquet, save


def tokenizer_of(batch: Batch, path: Path) -> object:
    save(batch, path)
    return load_parquet(path).tokenizer


def test_the_file_names_the_version_that_wrote_it(full: Batch, tmp_path: Path) -> None:
    save(full, tmp_path / "batch.parquet")
    metadata = pq.read_schema(tmp_path / "batch.parquet").metadata
    assert json.loads(metadata[b"rounddiag"])["rounddiag"] == __version__


@pytest.mark.parametrize("name", ["tokenizer.json", "below/tokenizer.json"])
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_tokenizer_beside_or_below_moves_with_the_folder(
    full: Batch, tmp_path: Path, name: str, kind: type
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    (old / name).parent.mkdir(parents=True)
    (old / name).write_text("{}")
    save(replace(full, tokenizer=kind(old / name)), old / "batch.parquet")
    old.rename(new)
    assert load_parquet(new / "batch.parquet").tokenizer == new / name


def test_a_name_in_meta_is_found_too(full: Batch, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    named = replace(full, meta={"tokenizer": "tokenizer.json"})
    found = tokenizer_of(named, tmp_path / "batch.parquet")
    assert found == tmp_path / "tokenizer.json"


def test_a_tokenizer_elsewhere_is_not_kept(full: Batch, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    there = replace(full, tokenizer=tmp_path / "tokenizer.json")
    assert tokenizer_of(there, tmp_path / "below" / "batch.parquet") is None
    called = replace(full, tokenizer=lambda ids: ids)
    assert tokenizer_of(called, tmp_path / "batch.parquet") is None


@pytest.mark.parametrize(
    "name",
    ["../secret", "{absolute}", "link", "below/../../secret", "", "\0", "a" * 5000, 3],
)
def test_no_name_leads_out_of_the_folder(
    full: Batch, tmp_path: Path, name: object
) -> None:
    (tmp_path / "secret").write_text("{}")
    folder = tmp_path / "folder"
    (folder / "below").mkdir(parents=True)
    (folder / "link").symlink_to(tmp_path / "secret")
    if isinstance(name, str):
        name = name.format(absolute=tmp_path / "secret")
    named = replace(full, meta={"tokenizer": name})
    assert tokenizer_of(named, folder / "batch.parquet") is None


def test_numpy_values_in_meta_become_plain(full: Batch, tmp_path: Path) -> None:
    meta = {"loss": np.float32(0.5), "sizes": np.array([1, 2]), "folder": tmp_path}
    save(replace(full, meta=meta), tmp_path / "batch.parquet")
    assert load_parquet(tmp_path / "batch.parquet").meta == {
        "loss": 0.5,
        "sizes": [1, 2],
        "folder": str(tmp_path),
        "source": str(tmp_path / "batch.parquet"),
    }


def test_the_source_is_the_file_and_the_first_source_is_kept(
    full: Batch, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    save(replace(full, meta={"source": "DataProto"}), first)
    assert load_parquet(first).meta == {
        "source": str(first),
        "original_source": "DataProto",
    }
    save(load_parquet(first), second)
    assert load_parquet(second).meta == {
        "source": str(second),
        "original_source": "DataProto",
    }

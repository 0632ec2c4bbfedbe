"""`load(..., tokenizer=...)`: opened at once, or named where the file names one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rounddiag import load, save
from rounddiag.errors import BatchError, LoadError
from tests.batches import hand_batch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file whose Recorder knew a tokenizer on another machine."""
    batch = replace(hand_batch(), meta={"tokenizer": "/models/agent-7b"})
    save(batch, tmp_path / "a.parquet")
    return tmp_path / "a.parquet"


def test_what_is_no_tokenizer_is_an_error_at_once(file: Path) -> None:
    missing = file.parent / "tokenizer.json"
    with pytest.raises(LoadError, match=f"^{missing}: expected a `tokenizer.json`; fo"):
        load(file, tokenizer=missing)
    with pytest.raises(BatchError, match="expected something that turns ids into text"):
        load(file, tokenizer=7)


def test_a_tokenizer_that_the_file_names_is_named_until_there_is_one(
    file: Path,
) -> None:
    batch = load(file)
    assert batch.tokenizer is None
    assert batch.meta["text"] == (
        "token ids only: the file names the tokenizer /models/agent-7b, which is not in"
        " its folder; pass it as `tokenizer=`"
    )
    save(batch, file.parent / "b.parquet")
    again = load(file.parent / "b.parquet", tokenizer=lambda ids: "a" * len(ids))
    assert "text" not in again.meta

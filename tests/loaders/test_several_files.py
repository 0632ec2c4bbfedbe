"""Folders and globs, opened."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import formats, load, save
from tests.batches import hand_batch
from tests.loaders.verl_writer import small_batch, write


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    for rank in (2, 10):
        batch = hand_batch(step=4, rewards=torch.full((3,), float(rank)))
        save(batch, tmp_path / f"step_4_rank_{rank}.parquet")
    return tmp_path


def test_a_folder_of_ranks_is_one_batch(ranks: Path) -> None:
    batch = load(ranks)

    assert batch.num_samples == 6
    assert batch.rewards.tolist() == [2, 2, 2, 10, 10, 10]
    assert batch.step == 4
    assert batch.meta["source"] == f"{ranks} (2 files)"
    names = ["step_4_rank_2.parquet", "step_4_rank_10.parquet"]
    assert batch.sample_columns["file"].tolist() == [names[0]] * 3 + [names[1]] * 3


def test_a_glob_is_one_batch_and_its_one_file_too(ranks: Path) -> None:
    assert load(ranks / "*.parquet").num_samples == 6

    alone = load(str(ranks / "*_2.parquet"))

    assert alone.num_samples == 3
    assert alone.meta["source"] == str(ranks / "step_4_rank_2.parquet")
    assert "file" not in alone.sample_columns


def test_files_in_several_folders_are_named_from_the_one_above(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        save(hand_batch(), tmp_path / folder / "x_rank_0.parquet")

    batch = load(tmp_path)

    assert sorted({*batch.sample_columns["file"]}) == [
        "a/x_rank_0.parquet",
        "b/x_rank_0.parquet",
    ]


def test_ranks_of_several_steps_are_an_error(ranks: Path) -> None:
    save(hand_batch(step=5), ranks / "step_5_rank_2.parquet")
    message = (
        f"expected the files of one step; found step 4 in {ranks}/step_4_rank_2.parquet"
        f" and step 5 in {ranks}/step_5_rank_2.parquet."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}"):
        load(ranks)
    assert load(ranks / "step_4_*").num_samples == 6


def test_files_that_are_no_parts_of_one_step_are_not_joined(tmp_path: Path) -> None:
    for name in ("healthy.parquet", "stale.parquet"):
        save(hand_batch(step=4), tmp_path / name)
    with pytest.raises(
        LoadError, match=r"found 2 batches: healthy.parquet, stale.parq"
    ):
        load(tmp_path)
    write(tmp_path / "verl", small_batch())
    message = (
        f"{tmp_path}/verl: expected the same format as in {tmp_path}/healthy.parquet:"
        " rounddiag's Parquet; found DataProto."
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}"):
        load(tmp_path / "*")


def test_a_damaged_part_is_named(ranks: Path) -> None:
    path = ranks / "step_4_rank_10.parquet"
    path.write_bytes(path.read_bytes()[:200])

    with pytest.raises(LoadError, match=f"^{re.escape(str(path))}: expected a whole"):
        load(ranks)


def test_our_parquet_is_listed_among_the_formats() -> None:
    found = formats().set_index("format")["files"]

    assert found["rounddiag's Parquet"] == "*.parquet"
    assert found["rounddiag's Parquet, one file per rank"] == "*_rank_*.parquet"


def test_options_work_on_what_was_joined(ranks: Path) -> None:
    batch = load(ranks, sample_by="file", order_by="row", tokenizer=str)

    assert batch.num_samples == 2
    assert batch.num_rounds == 10
    assert batch.tokenizer is str


def test_a_column_called_file_is_kept(tmp_path: Path) -> None:
    named = {"file": torch.tensor([7, 8, 9]).numpy()}
    for rank in range(2):
        batch = replace(hand_batch(), sample_columns=named)
        save(batch, tmp_path / f"a_rank_{rank}.parquet")

    assert load(tmp_path).sample_columns["file"].tolist() == [7, 8, 9] * 2


def test_a_file_is_named_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(load("sample_data/healthy.parquet")[:2], tmp_path / "a.parquet")
    monkeypatch.chdir(tmp_path)

    assert load("a.parquet").meta["source"] == "a.parquet"
    assert load(Path("a.parquet")).meta["source"] == "a.parquet"
    assert load(str(tmp_path)).meta["source"] == str(tmp_path / "a.parquet")

"""`tokens.db` of `martingale demo`, written by martingale 0.2.0."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import torch

import rounddiag as rd

DEMO = Path("tests/data/martingale-0.2.0/tokens.db")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copy(DEMO, tmp_path))


def change(path: Path, *queries: str) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        for query in queries:
            database.execute(query)
    return path


def test_the_numbers_by_lag_are_those_of_martingale() -> None:
    batch = rd.load(DEMO)
    rows = rd.legs(batch, by="lag")
    whole = rows[rows["leg"] == "whole"]
    assert whole["lag"].tolist() == [0, 2, 3, 4]
    assert whole["num_tokens"].tolist() == [104, 100, 96, 84]
    # `martingale report`, rounded as it prints them.
    assert [f"{mean:.3e}" for mean in whole["mean_log_ratio"]] == [
        *("1.052e-07", "-1.971e-02", "-6.704e-02", "4.371e-02")
    ]
    assert [f"{mean:.3e}" for mean in whole["mean_abs_log_ratio"]] == [
        *("1.049e-06", "1.541e-01", "2.029e-01", "3.248e-01")
    ]
    assert [f"{size:.3f}" for size in whole["effective_sample_size"]] == [
        *("1.000", "0.971", "0.944", "0.896")
    ]


def test_fields_of_the_demo() -> None:
    batch = rd.load(DEMO)
    assert (batch.num_samples, batch.num_tokens, batch.step) == (48, 384, 4)
    names = dict(zip(batch.sample_ids, range(48), strict=True))
    mixed = names["prompt-10"]  # one of those that cross an update
    start = int(batch.offsets[mixed])
    versions = batch.token_columns["weight_version"][start : start + 8]
    assert versions.tolist() == [2, 2, 2, 2, 4, 4, 4, 4]
    assert batch.sample_columns["trainer_version"].tolist() == [4] * 48
    assert int(batch.rewards.sum()) == 24
    assert batch.meta["sampling"] == {
        "temperature": 1.0,
        "top_p": 1.0,
        "logprobs_mode": "processed_logprobs",
    }


def test_a_ledger_that_is_still_written_is_read_with_its_log(copy: Path) -> None:
    with closing(sqlite3.connect(copy)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        with writer:
            writer.execute("DELETE FROM sequences WHERE sequence_index > 3")
        assert rd.load(copy).num_samples == 8


def test_a_sequence_that_nobody_scored_has_no_old_log_probs(copy: Path) -> None:
    batch = rd.load(change(copy, "DELETE FROM scores WHERE rowid <= 8"))
    assert int(torch.isnan(batch.old_log_probs).sum()) == 8
    assert rd.load(change(copy, "DELETE FROM scores")).old_log_probs is None

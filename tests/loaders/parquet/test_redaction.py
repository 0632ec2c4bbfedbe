"""`redact=True` leaves the numbers and nothing that could tell the task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.core.scores import select_scores
from rounddiag.loaders.parquet import load_parquet, save
from tests.loaders.parquet.conftest import objects, png

SECRET_ID = 151655


@pytest.fixture
def secret(full: Batch, tmp_path: Path) -> Batch:
    """The batch of these tests, with a secret wherever one can be."""
    (tmp_path / "secret.json").write_text("{}")
    return replace(
        full,
        tokenizer=tmp_path / "secret.json",
        group_ids=("secret-a", "secret-b", "secret-a"),
        sample_ids=("secret-0", "secret-1", "secret-2"),
        sample_columns={
            **full.sample_columns,
            "answer": np.array(["secret", "secret", ""]),
            "prompt_hash": np.array([SECRET_ID] * 3),
            "uid": np.array([SECRET_ID] * 3),
            "chat": objects(["secret"], {"secret": 1}, None),
            "tokens": np.full((3, 4), SECRET_ID),
        },
        round_columns={
            **full.round_columns,
            "request_id": np.array([SECRET_ID] * 3),
            "action": objects("secret", b"secret", None),
        },
        meta={
            "mask_source": "response_mask",
            "rounds": ["secret"],
            "source": "/home/secret/batch.pkl",
            "host": {"secret": 1},
            "num_dropped_rows": 2,
            "num_secrets": "secret",
            "sampling": {"temperature": 0.5, "engine": "secret", "nested": ["secret"]},
        },
    )


@pytest.fixture
def path(secret: Batch, tmp_path: Path) -> Path:
    save(secret, tmp_path / "redacted.parquet", redact=True)
    return tmp_path / "redacted.parquet"


def everything(path: Path) -> str:
    """All that a file holds: its metadata, its statistics, its columns."""
    table = pq.read_table(path)
    footer = pq.ParquetFile(path).metadata.to_dict()
    fields = [(field, field.metadata) for field in table.schema]
    return repr((table.to_pydict(), table.schema.metadata, fields, footer))


def test_no_secret_is_anywhere_in_the_file(path: Path) -> None:
    found = everything(path) + repr(path.read_bytes())
    words = ("secret", str(SECRET_ID), "cut off", "done", "/home", "PNG")
    assert [word for word in words if word in found] == []
    plain = path.with_name("plain.parquet")
    pq.write_table(pq.read_table(path), plain, compression="none")
    raw = plain.read_bytes()
    values = (b"secret", png("red")[8:], SECRET_ID.to_bytes(4, "little"))
    assert [value for value in values if value in raw] == []


def test_the_secrets_of_these_tests_are_found_where_nothing_is_left_out(
    secret: Batch, tmp_path: Path
) -> None:
    with pytest.raises(rd.errors.BatchError, match="an object of type bytes"):
        save(secret, tmp_path / "whole.parquet")
    rounds = {**secret.round_columns, "action": objects("secret", None, None)}
    save(replace(secret, round_columns=rounds), tmp_path / "whole.parquet")
    found = everything(tmp_path / "whole.parquet")
    words = ("secret", str(SECRET_ID), "cut off", "done", "/home", "PNG")
    assert [word for word in words if word not in found] == []


def test_frames_and_metrics_are_equal(secret: Batch, path: Path) -> None:
    again = load_parquet(path)
    pd.testing.assert_frame_equal(rd.token_frame(again), rd.token_frame(secret))
    columns = ["position", "rollout_log_prob", "old_log_prob", "entropy", "prob_diff"]
    pd.testing.assert_frame_equal(
        rd.token_frame(again, columns), rd.token_frame(secret, columns)
    )
    numbers = [*rd.round_frame(again).columns]
    assert [*rd.round_frame(secret).columns.difference(numbers)] == [
        *("action", "hashes", "request", "request_id")
    ]
    pd.testing.assert_frame_equal(
        rd.round_frame(again), rd.round_frame(secret)[numbers]
    )
    np.testing.assert_equal(rd.metrics(again), rd.metrics(secret))


def test_what_stays(path: Path) -> None:
    again = load_parquet(path)
    assert (again.response_ids, again.num_positions) == (None, 5)
    assert again.sample_ids == ("0", "1", "2")
    assert again.group_ids == ("0", "1", "0")
    assert [*again.sample_columns] == [
        *("rank", "column_1", "column_2", "column_3", "turns", "column_5", "won"),
        "column_7",
    ]
    assert [*again.round_columns] == ["sample", "round", "version"]
    assert [*again.scores] == ["ref", "a b.c"]
    assert again.position_ids is not None
    assert again.step == 40
    assert again.meta == {
        "mask_source": "response_mask",
        "num_dropped_rows": 2,
        "sampling": {"temperature": 0.5},
        "redacted": True,
        "source": str(path),
    }


def test_what_is_left_out(path: Path) -> None:
    again = load_parquet(path)
    names = ("prompt_ids", "prompt_offsets", "images", "rollout_ids", "tokenizer")
    assert [getattr(again, name) for name in names] == [None] * 5


def test_a_bare_batch_is_redacted_too(full: Batch, tmp_path: Path) -> None:
    bare = replace(full, sample_ids=None, group_ids=None, round_columns={}, meta={})
    save(bare, tmp_path / "bare.parquet", redact=True)
    again = load_parquet(tmp_path / "bare.parquet")
    assert (again.sample_ids, again.group_ids) == (None, None)
    assert again.meta["redacted"] is True


def test_which_scores_are_compared_stays(full: Batch, tmp_path: Path) -> None:
    scored = replace(full, scores={"current": full.log_probs("old") + 0.5})
    for a, meta in (("current", ["current", "rollout"]), ("old", None)):
        save(
            select_scores(scored, a, "rollout"), tmp_path / f"{a}.parquet", redact=True
        )
        assert load_parquet(tmp_path / f"{a}.parquet").meta.get("pair") == meta
    # What is not the name of a score could be anything.
    odd = replace(full, meta={"pair": ["Jane Doe", "rollout"]})
    save(odd, tmp_path / "odd.parquet", redact=True)
    assert "pair" not in load_parquet(tmp_path / "odd.parquet").meta


@pytest.mark.parametrize(
    "name",
    [
        *("userId", "user_id", "userid", "uid", "UID", "user-id", "user id", "User.ID"),
        *("sessionUUID", "guid", "requestIds", "promptHash", "prompt_hash", "digest"),
        *("traceid", "id", "ID", "task_ids", "X_id_2"),
    ],
)
def test_ids_of_any_spelling_are_left_out(
    name: str, full: Batch, tmp_path: Path
) -> None:
    secret = np.array([SECRET_ID] * 3)
    batch = replace(
        full, sample_columns={name: secret, "valid": np.ones(3), "grid": secret}
    )
    save(batch, tmp_path / "ids.parquet", redact=True)
    columns = load_parquet(tmp_path / "ids.parquet").sample_columns
    assert [*columns] == ["column_0", "column_1"]  # names that are not known

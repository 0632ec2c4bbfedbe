"""`redact=True` leaves the numbers and nothing that could tell the task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rounddiag as rd
from rounddiag.batch import Batch
from rounddiag.core.scores import select_scores
from rounddiag.loaders.parquet import load_parquet, save
from rounddiag.loaders.parquet.redaction import redact
from tests.loaders.facts import has
from tests.loaders.values import objects

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


def test_frames_and_metrics_are_equal(secret: Batch, path: Path) -> None:
    again = load_parquet(path)
    pd.testing.assert_frame_equal(rd.token_frame(again), rd.token_frame(secret))
    columns = ["position", "rollout_log_prob", "old_log_prob", "entropy", "prob_diff"]
    pd.testing.assert_frame_equal(
        rd.token_frame(again, columns), rd.token_frame(secret, columns)
    )
    numbers = [n for n in rd.round_frame(again).columns if not n.startswith("column_")]
    assert [*rd.round_frame(secret).columns.difference(numbers)] == [
        *("action", "hashes", "request", "request_id")
    ]
    pd.testing.assert_frame_equal(
        rd.round_frame(again)[numbers], rd.round_frame(secret)[numbers]
    )
    np.testing.assert_equal(rd.metrics(again), rd.metrics(secret))


def test_what_stays(path: Path) -> None:
    again = load_parquet(path)
    names = ("response_ids", "prompt_ids", "prompt_offsets", "images", "rollout_ids")
    expected = {
        **dict.fromkeys((*names, "tokenizer")),
        "num_positions": 5,
        "sample_ids": ["0", "1", "2"],
        "group_ids": ["0", "1", "0"],
        "sample.column_2": [0, 1, 2],  # ranks of 1, 2, 3
        "sample.column_5": [0, 1, 2],  # of 1, 2, 1 << 70
        "step": 40,
        "meta": {
            "mask_source": "response_mask",
            "num_dropped_rows": 2,
            "sampling": {"temperature": 0.5},
            "redacted": True,
            "source": str(path),
        },
    }
    has(again, expected)
    assert [*again.sample_columns] == [
        *("rank", "column_1", "column_2", "column_3", "turns", "column_5", "won"),
        *("column_7", "column_8", "column_9"),
    ]
    names = ("sample", "round", "version", "column_3", "column_4")
    assert [*again.round_columns] == [*names]
    assert [*again.scores] == ["ref", "score_1"]
    assert again.position_ids is not None


def test_a_bare_batch_is_redacted_too(full: Batch, tmp_path: Path) -> None:
    bare = replace(full, sample_ids=None, group_ids=None, round_columns={}, meta={})
    save(bare, tmp_path / "bare.parquet", redact=True)
    again = load_parquet(tmp_path / "bare.parquet")
    assert (again.sample_ids, again.group_ids) == (None, None)
    assert again.meta["redacted"] is True


def test_which_scores_are_compared_stays(full: Batch, tmp_path: Path) -> None:
    log_probs = full.log_probs("old") + 0.5
    scored = replace(full, scores={"current": log_probs, "Jane Doe": log_probs})
    for name, pair in (
        *(("current", ["current", "rollout"]), ("Jane Doe", ["score_1", "rollout"])),
        ("old", None),
    ):
        save(
            select_scores(scored, name, "rollout"), tmp_path / "a.parquet", redact=True
        )
        again = load_parquet(tmp_path / "a.parquet")
        assert again.meta.get("pair") == pair
        assert [*again.scores] == ["current", "score_1"]
    # What is not the name of a score could be anything.
    odd = replace(full, meta={"pair": ["Jane Doe", "rollout"]})
    assert "pair" not in redact(odd).batch.meta


@pytest.mark.parametrize(
    "name",
    [
        *("userId", "user_id", "userid", "uid", "UID", "user-id", "user id", "User.ID"),
        *("sessionUUID", "guid", "requestIds", "promptHash", "prompt_hash", "digest"),
        *("traceid", "id", "ID", "task_ids", "X_id_2", "session-id"),
    ],
)
def test_ids_of_any_spelling_are_numbered(name: str, full: Batch) -> None:
    ids = {name: np.array([9, 7, 9]), f"{name} ": objects("b", None, "a")}
    batch = replace(full, sample_columns={**ids, "valid": np.ones(3)})
    columns = redact(batch).batch.sample_columns
    assert [*columns] == ["column_0", "column_1", "column_2"]
    assert columns["column_0"].tolist() == [0, 1, 0]
    np.testing.assert_equal(columns["column_1"], [0, np.nan, 1])
    assert columns["column_2"] is batch.sample_columns["valid"]


def test_the_list_of_what_is_kept_is_printed(
    full: Batch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = replace(
        full,
        images=None,
        round_columns={},
        sample_columns={
            "rank": np.arange(3),
            "latency\n": np.array([0.5, 2.25, 1.0]),
            "grid": np.array([70, 50, 70]),
            "user_id": np.array([7, 7, 9]),
            "note": objects("a", "b", "c"),
        },
        meta={"num_dropped_rows": 2, "num_Jane": 3, "sampling": {"top_p": 0.5}},
    )
    save(batch, tmp_path / "a.parquet", redact=True)
    assert capsys.readouterr().out.splitlines()[3:] == [
        "  scores: ref, score_1 (was 'a b.c')",
        r"  sample_columns: rank, column_1 (was 'latency\n'), column_2 (was 'grid';"
        " ranks of its whole numbers), column_3 (was 'user_id'; values numbered)",
        "  meta: num_dropped_rows, sampling, redacted, top_p",
    ]

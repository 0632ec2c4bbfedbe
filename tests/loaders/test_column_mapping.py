"""What `columns=` names is used or refused, never dropped."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders import load, save
from tests.batches import hand_batch
from tests.loaders.table_cases import COLUMNS, check

TOKENWISE = "a list of numbers per sample, one per token"
SAMPLEWISE = "one name or number per sample"
NUMBER = "one number per sample"
SUM = "Rewards per token go by verl's name `token_level_scores`"
IDS = "Save the ids that the engines had"
OTHER = "Name another column"
# The field, the values of the column for it, what it holds; what was expected, advice.
UNFIT: list[tuple[str, Any, str, str, str]] = [
    ("rewards", ["good", "bad"], "text", NUMBER, SUM),
    ("rewards", [[0.0, 0.0, 1.0], [1.0]], "several values per sample", NUMBER, SUM),
    ("rewards", [1.0], "other values, or not 2 of them", NUMBER, SUM),
    ("advantages", [0.5, -0.5], "one value per sample", TOKENWISE, OTHER),
    ("group_ids", "a", "one value for all", SAMPLEWISE, OTHER),
    ("group_ids", ["a"], "other values, or not 2 of them", SAMPLEWISE, OTHER),
    ("sample_ids", [[1], [2]], "several values per sample", SAMPLEWISE, OTHER),
    ("ref_log_probs", [0.5, 0.5], "one value per sample", TOKENWISE, OTHER),
    ("old_log_probs", [0.5, 0.5], "one value per sample", TOKENWISE, OTHER),
    ("response_ids", ["a b", "c"], "text", TOKENWISE, IDS),
    (
        "attention_mask",
        [[1, 1, 1], [1]],
        "a mask of rows that have no padding",
        TOKENWISE,
        OTHER,
    ),
]


def without(name: str) -> dict[str, Any]:
    return {other: rows for other, rows in COLUMNS.items() if other != name}


SCORED = {
    "responses": np.array([[5, 6, 7], [8, 9, 9]]),
    "response_mask": np.ones((2, 3)),
    "rollout_log_probs": np.full((2, 3), -1.0),
    "old_log_probs": np.full((2, 3), -2.0),
    "rm_scores": torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    "mine": [1.0, 2.0],
}
RECORDS = np.zeros(2, dtype=[("id", "i4"), ("weight", "f4")])
# What is loaded, which columns are named, and what the message must say.
REFUSED: dict[str, tuple[dict[str, Any], dict[str, str], str]] = {
    **{
        f"{field} of {found}": (
            {**without(field), "mine": values},
            {field: "mine"},
            f"`{field}`: expected {expected}; found `mine`, which holds {found}."
            f" {advice}",
        )
        for field, values, found, expected, advice in UNFIT
    },
    "text in place of ids, without a word": (
        {**without("response_ids"), "responses": ["a b", "c"]},
        {},
        f"`responses`: expected {TOKENWISE}; found `responses`, which holds text.",
    ),
    **{
        f"nested ids of a {type(ids).__name__}": (
            {**COLUMNS, "response_ids": ids},
            {},
            f"`response_ids`: expected {TOKENWISE}; found `response_ids`, which holds"
            f" nested values. {IDS}",
        )
        for ids in list[Any]([[{"id": 1}, {"id": 2}], RECORDS])
    },
    "rewards beside others": (
        SCORED,
        {"rewards": "mine"},
        f"`rewards`: expected {NUMBER}; found `mine`, which holds one value per sample",
    ),
    "one field under two names": (
        {"a": [[1]], "b": [[1]]},
        {"responses": "a", "response_ids": "b"},
        "`columns`: expected one name of each field; found `response_ids` under 2",
    ),
    "a column that is not there": (
        {"ids": [[1]], "lp": [[-1.0]]},
        {"old_log_probs": "my_lp"},
        "`old_log_probs`: expected the name of a column; found 'my_lp', where the"
        " columns are ids, lp.",
    ),
    "a field that is none": (
        COLUMNS,
        {"old_logprob": "old_log_probs"},
        "`columns`: expected names of fields: response_ids, response_mask,"
        " rollout_log_probs, old_log_probs, entropy, advantages, loss_mask, round_ids,"
        " token_level_scores, prompt_ids, attention_mask, position_ids, rewards,"
        " group_ids, sample_ids, images, a score's as `ref_log_probs`, or verl's for"
        " one of them; found 'old_logprob'.",
    ),
    "one column for two fields": (
        {"lp": [[-1.0]]},
        {"old_log_probs": "lp", "ref_log_probs": "lp"},
        "`columns`: expected a column of its own for each field; found 'lp' 2 times.",
    ),
}


@pytest.mark.parametrize(
    ("content", "columns", "message"), REFUSED.values(), ids=REFUSED
)
def test_a_column_that_cannot_be_what_was_asked_is_refused(
    content: dict[str, Any], columns: dict[str, str], message: str
) -> None:
    with pytest.raises(LoadError, match=f"^dict: {re.escape(message)}"):
        load(content, columns=columns or None)


def test_a_file_is_named_and_one_that_is_no_table_has_no_columns(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({**without("rewards"), "said": ["good", "bad"]}), path)
    with pytest.raises(LoadError, match=f"^{path}: `rewards`: expected {NUMBER}; foun"):
        load(path, columns={"rewards": "said"})
    start = f"^{path}: `columns`: expected a table with names of your own; found"
    save(hand_batch(), tmp_path / "ours.parquet")
    (tmp_path / "ours.parquet").rename(path)
    with pytest.raises(LoadError, match=f"{start} a file of rounddiag's own, whose"):
        load(path, columns={"old_log_probs": "rollout_log_probs"})
    path.write_bytes(b"hello, world")
    with pytest.raises(LoadError, match=f"{start} bytes that start with b'hello, w'"):
        load(path, columns={"old_log_probs": "lp"})


def test_verl_s_names_serve_in_columns() -> None:
    verl = {
        "response_ids": "responses",
        "prompt_ids": "prompts",
        "group_ids": "uid",
        "ref_log_probs": "ref_log_prob",
    }
    content = {f"my_{name}": rows for name, rows in COLUMNS.items() if name != "turns"}
    names = {verl.get(name, name): f"my_{name}" for name in COLUMNS if name != "turns"}

    check(load({**content, "turns": [2, 1]}, columns=names))


def test_rewards_per_token_are_summed() -> None:
    content = {name: rows for name, rows in COLUMNS.items() if name != "rewards"}
    batch = load(
        {**content, "mine": [[0.0, 0.5, 1.0], [0.25]]},
        columns={"token_level_scores": "mine"},
    )

    assert batch.rewards.tolist() == [1.5, 0.25]


def test_a_mapped_entropy_goes_before_verl_s() -> None:
    entropy = [[3.0, 2.0, 1.0], [4.0]]
    content = {**COLUMNS, "entropys": [[0.0] * 3, [0.0]], "mine": entropy}
    batch = load(content, columns={"entropy": "mine"})

    assert batch.entropy.tolist() == [3.0, 2.0, 1.0, 4.0]

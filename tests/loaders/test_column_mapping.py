"""What `columns=` names is used or refused, never dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rounddiag.loaders import load, save
from tests.batches import hand_batch
from tests.loaders.table_cases import COLUMNS, check, says

TOKENWISE = "a list of numbers per sample, one per token"
SAMPLEWISE = "one name or number per sample"
OTHER = "Name another column, or leave this one out."
SUM = (
    "Rewards per token go by verl's name `token_level_scores`: their sum over a row is"
    " the reward."
)
IDS = (
    "Save the ids that the engines had: text cannot be turned back into the same ones."
)


@pytest.mark.parametrize(
    ("field", "values", "found", "expected", "advice"),
    [
        ("rewards", ["good", "bad"], "text", "one number per sample", SUM),
        (
            *("rewards", [[0.0, 0.0, 1.0], [1.0]], "several values per sample"),
            *("one number per sample", SUM),
        ),
        (
            "rewards",
            [1.0],
            "other values, or not 2 of them",
            "one number per sample",
            SUM,
        ),
        ("advantages", [0.5, -0.5], "one value per sample", TOKENWISE, OTHER),
        ("group_ids", "a", "one value for all", SAMPLEWISE, OTHER),
        ("group_ids", ["a"], "other values, or not 2 of them", SAMPLEWISE, OTHER),
        ("sample_ids", [[1], [2]], "several values per sample", SAMPLEWISE, OTHER),
        ("ref_log_probs", [0.5, 0.5], "one value per sample", TOKENWISE, OTHER),
        ("old_log_probs", [0.5, 0.5], "one value per sample", TOKENWISE, OTHER),
        ("response_ids", ["a b", "c"], "text", TOKENWISE, IDS),
        (
            *("attention_mask", [[1, 1, 1], [1]]),
            *("a mask of rows that have no padding", TOKENWISE, OTHER),
        ),
    ],
)
def test_a_column_that_cannot_be_what_was_asked_is_refused(
    field: str, values: Any, found: str, expected: str, advice: str
) -> None:
    content = {name: rows for name, rows in COLUMNS.items() if name != field}
    message = (
        f"dict: `{field}`: expected {expected}; found `mine`, which holds {found}."
        f" {advice}"
    )
    with says(message):
        load({**content, "mine": values}, columns={field: "mine"})


def test_a_column_of_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    content = {name: rows for name, rows in COLUMNS.items() if name != "rewards"}
    pq.write_table(pa.table({**content, "verdict": ["good", "bad"]}), path)
    message = (
        f"{path}: `rewards`: expected one number per sample; found `verdict`, which"
        f" holds text. {SUM}"
    )
    with says(message):
        load(path, columns={"rewards": "verdict"})


def test_text_in_place_of_ids_is_refused_without_columns_too() -> None:
    message = (
        f"dict: `responses`: expected {TOKENWISE}; found `responses`, which holds text."
        f" {IDS}"
    )
    content = {name: rows for name, rows in COLUMNS.items() if name != "response_ids"}
    with says(message):
        load({**content, "responses": ["a b", "c"]})


@pytest.mark.parametrize(
    "ids", [[{"id": 1}, {"id": 2}], np.zeros(2, dtype=[("id", "i4"), ("weight", "f4")])]
)
def test_nested_values_in_the_place_of_ids_are_named(ids: Any) -> None:
    message = (
        f"dict: `response_ids`: expected {TOKENWISE}; found `response_ids`, which holds"
        f" nested values. {IDS}"
    )
    with says(message):
        load({**COLUMNS, "response_ids": ids})


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


def test_a_column_of_rewards_beside_others_is_not_dropped() -> None:
    scores = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    ids = np.array([[5, 6, 7], [8, 9, 9]])
    content = {
        "responses": ids,
        "response_mask": np.ones((2, 3)),
        "rollout_log_probs": np.full((2, 3), -1.0),
        "old_log_probs": np.full((2, 3), -2.0),
        "rm_scores": scores,
        "mine": [1.0, 2.0],
    }
    message = (
        "dict: `rewards`: expected one number per sample; found `mine`, which holds one"
        f" value per sample. {SUM}"
    )
    with says(message):
        load(content, columns={"rewards": "mine"})


def test_one_field_has_one_name() -> None:
    message = (
        "dict: `columns`: expected one name of each field; found `response_ids` under 2"
        " names. Use our name or verl's."
    )
    with says(message):
        load({"a": [[1]], "b": [[1]]}, columns={"responses": "a", "response_ids": "b"})


def test_our_own_file_has_no_columns_to_name(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    save(hand_batch(), path)
    message = (
        f"{path}: `columns`: expected a table with names of your own; found a file of"
        " rounddiag's own, whose columns are known. Leave `columns` out. To compare"
        " other scores of a batch, name them in the view: `a=...`, `b=...`."
    )
    with says(message):
        load(path, columns={"old_log_probs": "rollout_log_probs"})

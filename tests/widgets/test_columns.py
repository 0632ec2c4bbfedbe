"""Columns of samples, rounds and tokens, and their groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import rounddiag as rd
from rounddiag.widgets.columns import BatchColumns
from tests.batches import MASK, hand_batch, padded
from tests.widgets.samples import worded


def wide(column: np.ndarray, diff: float = 0.0) -> rd.Batch:
    """A batch of one token a sample, with a column."""
    rows = [[-1.0]] * len(column)
    old = [[-1.0 + diff * (index % 5)] for index in range(len(column))]
    return padded([[1]] * len(column), old, rows, sample_columns={"fact": column})


def groups(batch: rd.Batch, name: str) -> dict[str, int]:
    """The number of tokens of each group, by its label."""
    size = rd.token_frame(batch)["diff"].abs().to_numpy()
    groups = pd.Series(BatchColumns(batch).groups(name, size))
    counts = groups.value_counts(sort=False)
    return {str(label): int(count) for label, count in counts.items()}


def test_few_values_are_groups_of_their_own() -> None:
    assert groups(wide(np.array(["b", "a", "b"])), "fact") == {"a": 1, "b": 2}
    assert groups(wide(np.arange(8)), "fact") == {str(index): 1 for index in range(8)}


def test_of_many_texts_seven_of_the_largest_mean_stay() -> None:
    names = np.array([f"env {index % 10}" for index in range(20)])
    found = groups(wide(names, diff=0.5), "fact")
    # env 4 and 9 have 2 nat, 3 and 8 1.5, 2 and 7 1 nat, 1 and 6 half a nat.
    assert [*found] == [
        "env 4",
        "env 9",
        "env 3",
        "env 8",
        "env 2",
        "env 7",
        "env 1",
        "others",
    ]
    assert [*found.values()] == [2] * 7 + [6]


def test_many_numbers_are_put_into_bins_in_their_order() -> None:
    found = groups(wide(np.arange(70)), "fact")
    assert [*found] == [
        "0 to 9",
        "10 to 19",
        "20 to 29",
        "30 to 39",
        "40 to 49",
        "50 to 59",
        "60 to 69",
    ]
    assert set(found.values()) == {10}


def test_ranks_are_names_and_counts_are_measures() -> None:
    batch = wide(np.arange(64))
    assert set(groups(batch, "fact").values()) == {1, 57}  # seven, and the others
    counts = replace(batch, sample_columns={"num_calls": np.arange(64)})
    assert next(iter(groups(counts, "num_calls"))) == "0 to 9"


def test_a_missing_number_is_a_group() -> None:
    assert groups(wide(np.array([0.5, np.nan, 1.0])), "fact") == {
        "0.5": 1,
        "1": 1,
        "nan": 1,
    }


def test_tokens_are_grouped_by_role_and_place() -> None:
    batch = worded([["so ", "click", "(", "12", ")"], ["a"]])
    found = groups(batch, "role")
    assert {name: num for name, num in found.items() if num} == {
        "thought": 2,
        "action": 1,
        "coordinates": 1,
        "syntax": 2,
    }
    assert groups(batch, "token") == {"0": 2, "1": 1, "2": 1, "3": 1, "4": 1}


def test_values_of_rows_are_those_of_the_frame() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    frame = rd.token_frame(batch, ["role", "status", "action"])
    columns = BatchColumns(batch)
    rows = frame.sample(50, random_state=0)
    assert columns.flat_index(rows).tolist() == rows.index.tolist()
    # First of these rounds alone, then of all tokens.
    assert columns.values_at("role", rows) == rows["role"].tolist()
    columns.codes("role")
    for name in ("role", "status", "action", "sample", "round", "token"):
        assert columns.values_at(name, rows) == rows[name].tolist()


def test_a_sample_is_described_by_what_filters_keep() -> None:
    batch = hand_batch(
        group_ids=("a", "b", "a"),
        rewards=torch.tensor([1.0, 0.0, 0.0]),
        sample_columns={
            "rank": np.array([7, 8, 9]),
            "status": np.array(["ok", "", ""]),
        },
    )
    columns = BatchColumns(batch)
    facts = {one["name"]: (one["text"], one["condition"]) for one in columns.facts(0)}
    assert facts == {
        "rank": ("7", [7]),
        "status": ("ok", ["ok"]),
        "group_id": ("a", ["a"]),
        "reward": ("1", [1.0]),
    }
    for name, (_, condition) in facts.items():
        assert columns.keep(name, condition)[:3].all()
    assert [one["name"] for one in columns.facts(2)] == ["reward", "rank", "group_id"]
    first, second = columns.mates(2)
    assert first == {
        "sample": 0,
        "reward": 1.0,
        "num_rounds": 2,
        "num_tokens": 3,
        "success": True,
    }
    assert (second["sample"], second["success"]) == (2, False)
    assert BatchColumns(hand_batch()).mates(0) == []


def test_a_list_in_a_column_is_shown_as_text() -> None:
    pairs = np.array([[1, 2], [3, 4], [1, 2]])
    columns = BatchColumns(hand_batch(sample_columns={"window": pairs}))
    assert columns.facts(1)[0]["text"] == "[3, 4]"
    assert columns.rank_samples("window").tolist() == [0, 1, 0]


def test_what_each_token_has_is_a_column() -> None:
    batch = hand_batch(
        entropy=torch.arange(18.0).reshape(3, 6),
        loss_mask=torch.tensor(MASK) * torch.tensor([[1], [0], [1]]),
    )
    columns = BatchColumns(batch)
    kept = columns.keep("loss_mask", [0])
    assert np.flatnonzero(kept).tolist() == [3, 4, 5, 6]
    kept = columns.keep("entropy", {"from": 9})
    assert np.flatnonzero(kept).tolist() == [5, 6, 7]
    kept = columns.keep("importance_weight", {"from": 2.0})  # e^1 and e^2
    assert np.flatnonzero(kept).tolist() == [2, 6]


def test_a_menu_lists_every_column() -> None:
    batch = hand_batch(sample_ids=("x", "y", "z"))
    assert BatchColumns(batch).offers() == [
        {"name": "sample_id", "values": ["x", "y", "z"]},
        {"name": "num_rounds", "values": [1, 2]},
        {"name": "num_tokens", "values": [1, 3, 4]},
        {
            "name": "importance_weight",
            "ends": [pytest.approx(np.exp(-1)), pytest.approx(np.exp(2))],
        },
        {"name": "sample", "values": [0, 1, 2]},
        {"name": "round", "values": [0, 1]},
        {"name": "token", "ends": [0, 2]},
    ]
    many = BatchColumns(wide(np.array([0.5, *range(9), np.nan])))
    assert many.offers()[0] == {"name": "fact", "ends": [0.0, 8.0]}


def test_rows_are_found_by_sample_and_round() -> None:
    rows = pd.DataFrame({"sample": [2, 1, 0], "round": [0, 1, 1], "token": [0, 0, 0]})
    columns = BatchColumns(hand_batch())
    assert columns.round_index(rows).tolist() == [4, 3, 1]
    assert columns.flat_index(rows).tolist() == [7, 6, 2]


def test_samples_are_ranked_by_any_column_of_theirs() -> None:
    rank = np.array(["b", "a", "b"], object)
    columns = BatchColumns(hand_batch(sample_columns={"rank": rank}))
    assert columns.rank_samples("rank").tolist() == [1, 0, 1]
    assert columns.sample_names[0] == "rank"
    assert "token" not in columns.sample_names

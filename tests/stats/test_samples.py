"""How far the samples of a group are apart."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from rounddiag import sample_frame
from rounddiag.errors import FrameError
from rounddiag.stats import groups
from tests.batches import hand_batch, padded


def test_a_group_has_its_mean_and_its_spread() -> None:
    batch = hand_batch(group_ids=("b", "a", "b"))
    found = groups(batch)

    assert found["group_id"].tolist() == ["b", "a"]
    assert found["num_samples"].tolist() == [2, 1]
    assert found["num_tokens"].tolist() == [4, 4]
    # |diff| of sample 0: 0.5, 0.25, 1; of 2: 1; of 1: 0, 0.25, 0.5, 2.
    assert found["mean_abs_diff"].tolist() == pytest.approx([2.75 / 4, 2.75 / 4])
    assert found["lowest"].tolist() == pytest.approx([1.75 / 3, 2.75 / 4])
    assert found["highest"].tolist() == pytest.approx([1.0, 2.75 / 4])
    assert found["spread"].tolist() == pytest.approx(
        [(1 - 1.75 / 3) / np.sqrt(2), np.nan], nan_ok=True
    )


def test_each_value_of_a_column_has_groups_of_its_own() -> None:
    batch = hand_batch(
        group_ids=("b", "a", "b"), sample_columns={"rank": np.array([7, 3, 3])}
    )
    found = groups(batch, by="rank")

    assert found[["rank", "group_id", "num_tokens"]].to_numpy().tolist() == [
        [3, "a", 4],
        [3, "b", 1],
        [7, "b", 3],
    ]
    assert found["mean_abs_diff"].tolist() == pytest.approx([2.75 / 4, 1, 1.75 / 3])


def test_groups_are_not_divided_by_themselves() -> None:
    batch = hand_batch(group_ids=("b", "a", "b"))
    message = (
        "`by`: expected a column that is called none of ['group_id', 'num_samples',"
        " 'num_tokens', 'mean_abs_diff', 'lowest', 'highest', 'spread']; found"
        " 'group_id'. Give the column another name."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        groups(batch, by="group_id")


def test_the_worst_samples_of_a_file_do_not_count() -> None:
    columns = {"picked": np.array(["random", "worst", "random"])}
    batch = hand_batch(group_ids=("b", "a", "b"), sample_columns=columns)
    batch = replace(batch, meta={"capture": {"rounds": []}})
    assert groups(batch)["group_id"].tolist() == ["b"]


def test_samples_of_no_group_are_one() -> None:
    samples = sample_frame(hand_batch(group_ids=("b", "a", "b")))
    samples["group_id"] = [None, "a", None]
    found = groups(samples)
    assert found["num_samples"].tolist() == [2, 1]
    assert found["num_tokens"].tolist() == [4, 4]


def test_an_empty_batch_has_no_group() -> None:
    empty = torch.zeros(0, 3)
    batch = padded(empty, empty, empty, group_ids=())

    assert len(groups(batch)) == 0


def test_a_batch_without_groups_is_an_error() -> None:
    with pytest.raises(FrameError, match="without \\['group_id'\\]"):
        groups(hand_batch())

"""What the summary is divided by, drawn by, and counted from."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from rounddiag import round_summary, token_frame
from rounddiag.errors import BatchError, FrameError
from tests.batches import hand_batch, padded, random_log_probs

COUNTS = ["round", "num_samples", "num_tokens"]


def rows(frame: pd.DataFrame, *columns: str) -> list[list[Any]]:
    return frame[list(columns)].to_numpy(dtype=object).tolist()


def columned(**columns: Any) -> Any:
    """The hand batch: 2, 2 and 1 rounds; 3, 4 and 1 tokens."""
    arrays = {name: np.array(values) for name, values in columns.items()}
    return hand_batch(sample_columns=arrays)


def test_a_sample_column_gives_a_row_per_value_and_round() -> None:
    summary = round_summary(columned(rank=[7, 3, 7]), by="rank")
    assert summary.columns[:2].tolist() == ["rank", "round"]
    assert rows(summary, "rank", *COUNTS) == [
        [3, 0, 1, 3],
        [3, 1, 1, 1],
        [7, 0, 2, 3],
        [7, 1, 1, 1],
    ]
    assert summary["mean"].tolist() == [0.25, 2, pytest.approx(1.75 / 3), 1]
    assert summary["rank"].dtype == np.int64


@pytest.mark.parametrize(
    ("by", "wanted"),
    [
        ("group_id", [["a", 0], ["a", 1], ["b", 0], ["b", 1]]),
        ("reward", [[0.0, 0], [0.0, 1], [1.5, 0], [1.5, 1]]),
        ("num_rounds", [[1, 0], [2, 0], [2, 1]]),
        ("sample", [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0]]),
    ],
)
def test_a_column_of_the_sample_frame_does_as_well(by: str, wanted: object) -> None:
    batch = hand_batch(group_ids=("b", "a", "a"), rewards=torch.tensor([0.0, 1.5, 0.0]))
    assert rows(round_summary(batch, by=by), by, "round") == wanted


def test_rounds_that_a_column_leaves_out_are_rows_too() -> None:
    columns = {
        "sample": np.array([0, 0, 1]),
        "round": np.array([0, 1, 1]),
        "status": np.array(["ok", "late", "ok"], dtype=object),
    }
    summary = round_summary(hand_batch(round_columns=columns), by="status")
    assert rows(summary.iloc[:3], "status", *COUNTS) == [
        ["late", 1, 1, 1],
        ["ok", 0, 1, 2],
        ["ok", 1, 1, 1],
    ]
    assert pd.isna(summary["status"][3])
    assert rows(summary.iloc[3:], *COUNTS) == [[0, 2, 4]]
    assert summary["num_tokens"].sum() == hand_batch().num_tokens


def test_a_column_of_a_token_frame_must_be_one_value_a_round() -> None:
    tokens = token_frame(columned(rank=[7, 3, 7]), ["rank", "position"])
    pd.testing.assert_frame_equal(
        round_summary(tokens, by="rank"),
        round_summary(columned(rank=[7, 3, 7]), by="rank").drop(columns="prob_diff"),
    )
    message = (
        "`position`: expected a column that has one value for all tokens of a round;"
        " found several values. Put values into bins in a column of your own, and name"
        " that one."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        round_summary(tokens, by="position")


def test_the_error_of_an_unknown_column_lists_the_known_ones() -> None:
    message = (
        "`by`: expected one of ['rank', 'sample', 'num_rounds', 'max_abs_diff']; found"
        " 'replica'. Name a column of samples or of rounds."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        round_summary(columned(rank=[7, 3, 7]), by="replica")
    tokens = token_frame(hand_batch())
    message = (
        "`by`: expected one of ['sample', 'token', 'diff']; found 'round'. Name a"
        " column of samples or of rounds."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        round_summary(tokens, by="round")


def batch_of(num: int) -> Any:
    zeros = torch.zeros(num, 1)
    names = np.arange(num)
    return padded(zeros + 1, zeros, zeros, sample_columns={"worker": names})


def test_a_hundred_values_are_divided_and_more_are_not() -> None:
    assert len(round_summary(batch_of(100), by="worker")) == 100
    message = (
        "`worker`: expected a column that has at most 100 values; found 101. Put"
        " values into bins in a column of your own, and name that one."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        round_summary(batch_of(101), by="worker")


def test_values_that_cannot_be_compared_are_refused() -> None:
    hashes = np.empty(3, dtype=object)
    hashes[:] = [["x"], ["y"], []]
    message = (
        "`hashes`: expected a column that has numbers or texts; found values as list."
        " Put values into bins in a column of your own, and name that one."
    )
    batch = hand_batch(sample_columns={"hashes": hashes, "boxes": np.zeros((3, 2))})
    frame = token_frame(batch)
    frame["hashes"] = hashes[frame["sample"]]
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        round_summary(frame, by="hashes")
    # Frames of a batch have the text of such a value.
    texts = round_summary(batch, by="hashes")["hashes"]
    assert set(texts) == {"['x']", "['y']", "[]"}
    assert set(round_summary(batch, by="boxes")["boxes"]) == {"[0.0, 0.0]"}


def test_a_column_that_the_summary_has_itself_is_not_offered() -> None:
    batch = columned(mean=[1, 2, 3], rank=[1, 2, 3])
    with pytest.raises(FrameError, match="expected one of \\['rank', 'sample'"):
        round_summary(batch, by="mean")
    with pytest.raises(FrameError, match="found ''"):
        round_summary(batch, by="")


def test_names_of_groups_can_be_of_any_kind() -> None:
    tokens = token_frame(hand_batch())
    names = np.array([None] * 3 + [7] * 4 + ["a"], dtype=object)
    named = tokens.assign(group_id=names)
    assert round_summary(named).equals(round_summary(tokens))


def test_rounds_count_from_the_end_of_each_sample() -> None:
    summary = round_summary(hand_batch(), last_aligned=True)
    # Last rounds: 1 | 2 | -1. The ones before: 0.5, -0.25 | 0, 0.25, -0.5.
    assert rows(summary, *COUNTS) == [[-2, 2, 5], [-1, 3, 3]]
    assert summary["mean"].tolist() == [pytest.approx(0.3), pytest.approx(4 / 3)]
    assert summary["round"].dtype == np.int32
    tokens = round_summary(token_frame(hand_batch()), last_aligned=True)
    pd.testing.assert_frame_equal(tokens, summary.drop(columns="prob_diff"))


def test_rounds_from_the_end_are_divided_too() -> None:
    summary = round_summary(columned(rank=[7, 3, 7]), by="rank", last_aligned=True)
    wanted = [[3, -2, 3], [3, -1, 1], [7, -2, 2], [7, -1, 2]]
    assert rows(summary, "rank", "round", "num_tokens") == wanted


def test_rounds_of_fewer_than_five_samples_are_marked() -> None:
    mask = torch.ones(5, 3)
    mask[:, 1], mask[4, 2] = 0, 0
    summary = round_summary(padded(mask, mask, mask))
    assert summary["num_samples"].tolist() == [5, 4]
    assert summary["is_few"].tolist() == [False, True]


def test_rounds_of_fewer_than_five_groups_are_marked_where_groups_are_drawn() -> None:
    mask = torch.ones(20, 3)
    mask[16:, 2] = 0
    mask[:, 1] = 0
    groups = tuple(str(i // 4) for i in range(20))
    batch = padded(mask, mask, mask, group_ids=groups)
    assert round_summary(batch)["is_few"].tolist() == [False, True]
    by_sample = round_summary(replace(batch, group_ids=None))
    assert by_sample["is_few"].tolist() == [False, False]
    assert by_sample["num_samples"].tolist() == [20, 16]


def test_samples_without_a_finite_diff_are_none_of_five() -> None:
    old = torch.zeros(7, 1)
    old[:3] = torch.nan
    summary = round_summary(padded(torch.ones(7, 1), old, torch.zeros(7, 1)))
    assert summary["num_samples"].tolist() == [7]
    assert summary["is_few"].tolist() == [True]


def test_shares_are_of_finite_tokens_and_of_all() -> None:
    old = torch.tensor([[torch.nan, 0.0, 0.0, -1.0, torch.inf]])
    summary = round_summary(padded(torch.ones(1, 5), old, torch.zeros(1, 5)))
    assert summary["share_nonfinite"].tolist() == [0.4]
    assert summary["share_zero"].tolist() == [pytest.approx(2 / 3)]


def test_groups_are_drawn_where_there_are_some() -> None:
    old, rollout = random_log_probs((40, 3), 1), random_log_probs((40, 3), 2)
    groups = tuple(str(i // 2) for i in range(40))
    batch = padded(torch.ones(40, 3), old, rollout, group_ids=groups)
    alone = round_summary(replace(batch, group_ids=None))
    assert not round_summary(batch).equals(alone)
    tokens = token_frame(batch, ["prob_diff"])
    named = tokens.assign(group_id=np.asarray(groups)[tokens["sample"]])
    pd.testing.assert_frame_equal(round_summary(named), round_summary(batch))


def test_any_pair_of_scores() -> None:
    batch = hand_batch(scores={"current": torch.full((3, 6), -1.0)})
    summary = round_summary(batch, a="current", metric="diff")
    # Rollouts -1, -1 | -1, -1, -1 | -2 and -2 | -3.
    assert summary["mean"].tolist() == [pytest.approx(1 / 6), 1.5]
    old, rollout = np.exp([-1.0, -1.0]), np.exp([-2.0, -3.0])
    assert summary["prob_diff"][1] == pytest.approx((old - rollout).mean())
    with pytest.raises(BatchError, match="one of the scores"):
        round_summary(batch, b="ref")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"weight": "round"},
            '`weight`: expected "token" or "sample"; found \'round\'. Name what has'
            " equal weight in a mean.",
        ),
        (
            {"cluster": "sample"},
            "`cluster`: expected no such argument, which 0.3.0 removed; found 'sample'."
            " Without `group_ids`, or `group_id` in a frame, samples are drawn.",
        ),
        (
            {"a": "ref"},
            "expected a Batch, to choose `a` and `b`; found a frame of the pair 'old',"
            " 'rollout'. Choose them in `rounddiag.token_frame(batch, a=..., b=...)`.",
        ),
    ],
)
def test_an_option_that_is_none_is_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        round_summary(token_frame(hand_batch()), **options)

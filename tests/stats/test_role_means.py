"""Means by what tokens are for."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.core.scores import select_scores
from rounddiag.errors import BatchError
from rounddiag.schema import ROLE_MEANS
from rounddiag.stats import role_means
from tests.batches import hand_batch, padded

# One letter a token. Rounds: "go", "k" | "ab(", "1" | "x"
LETTERS = "go?k(?" + "?ab(?1" + "x"


def spelled(ids: list[int]) -> str:
    return "".join(LETTERS[i] for i in ids)


def test_tokens_are_divided_by_role_and_the_ends_of_rounds_come_on_top() -> None:
    means = role_means(hand_batch(tokenizer=spelled))
    names = ["role", "overlaps", "num_samples", "num_tokens", "mean"]
    # |diff| of the tokens in order: 0.5 0.25 | 1 | 0 0.25 0.5 | 2 | 1
    assert list(means[names].itertuples(index=False, name=None)) == [
        ("thought", False, 3, 5, 4.75 / 5),
        ("action", False, 1, 2, 0.125),
        ("syntax", False, 1, 1, 0.5),
        ("first of a round", True, 3, 5, 4.5 / 5),
        ("last of a round", True, 3, 5, 4.75 / 5),
    ]
    assert means.columns.tolist() == [column.name for column in ROLE_MEANS.columns]


def test_roles_divide_all_tokens() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    means = role_means(batch)
    assert means.loc[~means["overlaps"], "num_tokens"].sum() == batch.num_tokens
    assert means.loc[means["overlaps"], "num_tokens"].tolist() == [batch.num_rounds] * 2


def test_another_tagger_can_be_passed() -> None:
    batch = hand_batch(tokenizer=spelled)
    means = role_means(batch, tagger=lambda _: [(0, 1, "loud")])
    assert means["role"].tolist()[:2] == ["other", "loud"]
    assert means["mean"].tolist()[:2] == [1.0 / 3, 4.5 / 5]


def test_nothing_finite_has_a_row_without_a_mean() -> None:
    batch = padded([[1, 1]], [[np.nan] * 2], [[0.5] * 2], tokenizer=spelled)
    means = role_means(batch)
    assert means["num_nonfinite"].tolist() == [2, 1, 1]
    assert means["mean"].isna().all()


def test_a_batch_without_a_tokenizer_is_an_error() -> None:
    message = "This batch has no tokenizer: pass `tokenizer=` to `rd.load`."
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        role_means(hand_batch())


def test_a_column_divides_the_tokens_of_each_role() -> None:
    columns = {"rank": np.array([7, 3, 7])}
    batch = hand_batch(tokenizer=spelled, sample_columns=columns)
    means = role_means(batch, by="rank")
    names = ["role", "rank", "overlaps", "num_tokens", "mean"]
    # |diff| of rank 3: 0 0.25 0.5 | 2 (action, syntax, thought); of 7: 0.5 0.25 | 1, 1
    assert list(means[names].itertuples(index=False, name=None)) == [
        ("thought", 3, False, 1, 2.0),
        ("action", 3, False, 2, 0.125),
        ("syntax", 3, False, 1, 0.5),
        ("thought", 7, False, 4, 2.75 / 4),
        ("first of a round", 3, True, 2, 1.0),
        ("first of a round", 7, True, 3, 2.5 / 3),
        ("last of a round", 3, True, 2, 1.25),
        ("last of a round", 7, True, 3, 2.25 / 3),
    ]


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [
        # Diffs 0.5 -0.25 | 1 | 0 0.25 -0.5 | 2 | -1: thought, action twice, syntax.
        ("diff", [2.25 / 5, 0.125, -0.5]),
        ("k2", [(0.25 + 0.0625 + 1 + 4 + 1) / 10, 0.0625 / 4, 0.125]),
        ("beyond", [3 / 5, 0, 0]),
        ("train_rollout_logprob_abs_diff", [(1.75 / 3 + 2 + 1) / 3, 0.125, 0.5]),
    ],
)
def test_another_metric_is_averaged(metric: str, wanted: list[float]) -> None:
    means = role_means(hand_batch(tokenizer=spelled), metric=metric)
    assert means["mean"].tolist()[:3] == pytest.approx(wanted)


def test_differences_of_probabilities_are_averaged() -> None:
    means = role_means(hand_batch(tokenizer=spelled), metric="prob_diff")
    syntax = np.exp(-1.0) - np.exp(-1.5)
    assert means["mean"][2] == pytest.approx(syntax, rel=1e-6)


def test_the_frame_names_the_pair() -> None:
    batch = select_scores(hand_batch(tokenizer=spelled), "rollout", "old")
    assert role_means(batch).attrs == {"pair": ["rollout", "old"]}

"""Means by what tokens are for."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.errors import FrameError
from rounddiag.schema import ROLE_MEANS
from rounddiag.stats import role_means
from tests.batches import hand_batch, padded

# One letter a token. Rounds: "go", "k" | "ab(", "1" | "x"
LETTERS = "go?k(?" + "?ab(?1" + "x"


def spelled(ids: list[int]) -> str:
    return "".join(LETTERS[i] for i in ids)


def test_tokens_are_divided_by_role_and_the_ends_of_rounds_come_on_top() -> None:
    found = role_means(hand_batch(tokenizer=spelled))
    names = ["role", "overlaps", "num_samples", "num_tokens", "mean"]
    # |diff| of the tokens in order: 0.5 0.25 | 1 | 0 0.25 0.5 | 2 | 1
    assert list(found[names].itertuples(index=False, name=None)) == [
        ("thought", False, 3, 5, 4.75 / 5),
        ("action", False, 1, 2, 0.125),
        ("syntax", False, 1, 1, 0.5),
        ("first of a round", True, 3, 5, 4.5 / 5),
        ("last of a round", True, 3, 5, 4.75 / 5),
    ]
    assert found.columns.tolist() == [column.name for column in ROLE_MEANS.columns]


def test_roles_divide_all_tokens() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    found = role_means(batch)
    assert found.loc[~found["overlaps"], "num_tokens"].sum() == batch.num_tokens
    assert found.loc[found["overlaps"], "num_tokens"].tolist() == [batch.num_rounds] * 2


def test_another_tagger_can_be_given() -> None:
    batch = hand_batch(tokenizer=spelled)
    found = role_means(batch, tagger=lambda _: [(0, 1, "loud")])
    assert found["role"].tolist()[:2] == ["other", "loud"]
    assert found["mean"].tolist()[:2] == [1.0 / 3, 4.5 / 5]


def test_nothing_finite_has_a_row_without_a_mean() -> None:
    batch = padded([[1, 1]], [[np.nan] * 2], [[0.5] * 2], tokenizer=spelled)
    found = role_means(batch)
    assert found["num_nonfinite"].tolist() == [2, 1, 1]
    assert found["mean"].isna().all()


def test_no_tokens_have_no_rows() -> None:
    found = role_means(hand_batch(tokenizer=spelled)[:0])
    assert len(found) == 0
    assert found.columns.tolist() == [column.name for column in ROLE_MEANS.columns]


def test_the_worst_samples_of_a_file_do_not_count() -> None:
    columns = {"picked": np.array(["random", "worst", "random"])}
    meta: dict[str, object] = {"capture": {"rounds": []}}
    batch = hand_batch(tokenizer=spelled)
    found = role_means(replace(batch, sample_columns=columns, meta=meta))
    assert found["num_tokens"].tolist() == [4, 3, 3]


def test_a_batch_without_a_tokenizer_is_an_error() -> None:
    message = (
        "`role`: expected a batch with a tokenizer; found a batch without one."
        " Pass `tokenizer=` to `rounddiag.load`."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        role_means(hand_batch())

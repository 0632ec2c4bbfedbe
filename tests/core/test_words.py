"""Text of tokens, and what they are for, as columns."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import rounddiag as rd
from rounddiag import schema, token_frame
from rounddiag.core import token_roles
from rounddiag.errors import BatchError
from rounddiag.text import ROLES
from tests.batches import hand_batch, padded, redacted

# One letter a token; the two rounds of a sample of `hand_batch` are told apart.
REDACTED = (
    "This batch was saved with `redact=True`, which leaves out token ids and text: load"
    " the original file."
)
LETTERS = "go?k(?" + "?ab(?1" + "x"


def spelled(ids: list[int]) -> str:
    return "".join(LETTERS[i] for i in ids)


def test_each_round_is_tagged_by_itself() -> None:
    batch = hand_batch(tokenizer=spelled)
    frame = token_frame(batch, ["text", "role"])
    # Rounds: "go", "k" | "ab(", "1" | "x"
    assert frame["text"].tolist() == list("gokab(1x")
    assert frame["role"].tolist() == [
        *["thought"] * 3,
        *("action", "action", "syntax"),
        *["thought"] * 2,
    ]
    assert frame["role"].dtype == schema.TOKENS["role"].dtype
    assert frame["role"].cat.categories.tolist() == list(ROLES)


def test_the_tokenizer_names_special_tokens() -> None:
    frame = token_frame(rd.load("sample_data/healthy.parquet"), ["text", "role"])
    special = frame[frame["role"] == "special"]
    assert set(special["text"]) == {"<|im_end|>"}
    assert len(special) == (frame["text"] == "<|im_end|>").sum() > 0


def test_another_tagger_adds_its_roles() -> None:
    batch = hand_batch(tokenizer=spelled)
    found = token_roles(batch, lambda text: [(0, 1, "first")] if text else [])
    assert list(found) == [
        *("first", "other", "first"),
        *("first", "other", "other", "first"),
        "first",
    ]
    assert found.categories.tolist() == [*ROLES, "first"]


def test_no_tokens_have_no_roles() -> None:
    batch = padded(np.zeros((1, 2)), np.zeros((1, 2)), np.zeros((1, 2)))
    frame = token_frame(replace(batch, tokenizer=spelled), ["role"])
    assert len(frame) == 0
    assert isinstance(frame["role"].dtype, pd.CategoricalDtype)


def test_a_batch_without_a_tokenizer_has_no_roles() -> None:
    message = "This batch has no tokenizer: pass `tokenizer=` to `rd.load`."
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        token_frame(hand_batch(), ["role"])


@pytest.mark.parametrize("column", ["token_id", "role", "text"])
def test_a_redacted_batch_has_no_words(column: str) -> None:
    batch = redacted(hand_batch(tokenizer=spelled))
    with pytest.raises(BatchError, match=f"^{re.escape(REDACTED)}$"):
        token_frame(batch, ["position", column])

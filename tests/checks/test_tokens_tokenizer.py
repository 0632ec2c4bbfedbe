"""A tokenizer that is not the model's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from rounddiag import check, load
from rounddiag.checks.tokens import TOKENIZER
from tests.checks.chats import (
    CLICK,
    DONE,
    EMPTY,
    NO_TOKEN,
    PASSED,
    Broken,
    Chat,
    came_to,
    chat,
    untestable,
)

SAMPLE = Path("sample_data/healthy.parquet")
TOKENIZER_FILE = Path("sample_data/tokenizer.json")


def test_the_models_own_tokenizer_passes() -> None:
    batch = load(SAMPLE, tokenizer=TOKENIZER_FILE)
    assert came_to(TOKENIZER, batch) == PASSED


def test_ids_that_it_does_not_know_are_counted() -> None:
    class Small(Chat):
        def decode(self, ids: Any, **_: Any) -> str:
            return "".join("" if token == DONE else "a" for token in ids)

    batch = chat([[CLICK, DONE, DONE]], [[1, 1, 1]], tokenizer=Small())
    assert came_to(TOKENIZER, batch) == (
        "failed",
        f"it does not know 2 of 3 tokens, such as {DONE}: it is not the tokenizer of"
        " this model",
        (),
    )


def test_text_that_no_model_wrote_is_named(tmp_path: Path) -> None:
    # The same texts with their ids in reverse, except special tokens.
    content = json.loads(TOKENIZER_FILE.read_text(encoding="utf-8"))
    special = {token["content"] for token in content["added_tokens"]}
    vocabulary = content["model"]["vocab"]
    words = [word for word in vocabulary if word not in special]
    ids = sorted((vocabulary[word] for word in words), reverse=True)
    vocabulary |= dict(zip(words, ids, strict=True))
    other = tmp_path / "tokenizer.json"
    other.write_text(json.dumps(content), encoding="utf-8")

    batch = load(SAMPLE, tokenizer=other)

    status, detail, _ = came_to(TOKENIZER, batch)
    assert status == "failed"
    assert detail.startswith("its text of ")
    assert detail.endswith("it may be the tokenizer of another model")
    assert "the tokenizer is the model's" in {
        result.name for result in check(batch).failed
    }


def test_few_tokens_prove_nothing() -> None:
    # "don" and "e" are two tokens; encoded again, "done" is one.
    tokenizer = Tokenizer.from_file(str(TOKENIZER_FILE))
    ids = [tokenizer.encode(letter).ids[0] for letter in "done"]
    assert came_to(TOKENIZER, chat([ids], [[1] * 4], tokenizer=tokenizer)) == PASSED


def test_without_a_working_tokenizer_it_is_untestable() -> None:
    assert came_to(TOKENIZER, EMPTY) == NO_TOKEN
    assert came_to(TOKENIZER, chat([[7]], [[1]])) == untestable("needs `tokenizer`")
    broken = came_to(TOKENIZER, chat([[7]], [[1]], tokenizer=Broken()))
    assert broken[0] == "not testable"


@pytest.mark.parametrize("share", [1, 3])
def test_a_tokenizer_may_fail_at_encoding(share: int) -> None:
    class Deaf(Chat):
        def encode(self, text: str, **_: Any) -> list[int]:
            raise RuntimeError(text)

    batch = chat([[CLICK] * share], [[1] * share], tokenizer=Deaf())
    assert came_to(TOKENIZER, batch)[0] == "not testable"

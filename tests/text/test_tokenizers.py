"""Tokenizers come in many forms, and what is none says so."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tokenizers import Tokenizer

from rounddiag.errors import BatchError, LoadError
from rounddiag.text import pieces, special_tokens
from tests.loaders.hostile_files import panicking

KINDS = (
    "Pass the path of a `tokenizer.json`, a transformers tokenizer or its name, or a"
    " callable that turns a list of ids into text."
)
TEXT = "hi 世界<|im_end|>"


class Fast:
    """Like a fast tokenizer of transformers: it holds the one that does the work."""

    def __init__(self, inner: Tokenizer) -> None:
        self.backend_tokenizer = inner


class Processor:
    """Like a processor of transformers, of text and pictures."""

    def __init__(self, inner: Tokenizer) -> None:
        self.tokenizer = Fast(inner)


class Slow:
    """Like a slow tokenizer of transformers."""

    def __init__(self, inner: Tokenizer) -> None:
        self.added_tokens_decoder = inner.get_added_tokens_decoder()
        self.decode = inner.decode


def test_a_tokenizer_comes_as_a_path_an_object_or_a_function(
    of_bytes: Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    of_bytes.save(str(path))
    ids = of_bytes.encode(TEXT).ids
    forms: list[object] = [path, str(path), tmp_path, str(tmp_path)]
    forms += [of_bytes, Fast(of_bytes), Slow(of_bytes), Processor(of_bytes)]

    def decode(ids: list[int]) -> str:
        return str(of_bytes.decode(ids, skip_special_tokens=False))

    for tokenizer in [*forms, decode]:
        assert "".join(pieces(ids, tokenizer)) == TEXT


def test_a_changed_tokenizer_file_is_read_again(
    of_bytes: Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    of_bytes.save(str(path))
    assert pieces([257], path) == ["⟨257⟩"]
    of_bytes.add_special_tokens(["<more>"])
    of_bytes.save(str(path))
    assert pieces([257], path) == ["<more>"]


def test_a_path_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    message = f"{missing}: expected a `tokenizer.json`; found no such file. {KINDS}"
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        pieces([1], missing)
    inside = tmp_path / "tokenizer.json"
    message = f"{inside}: expected a `tokenizer.json`; found no such file. {KINDS}"
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        pieces([1], str(tmp_path))


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "tokenizer.json"
    broken.write_text("model")
    message = (
        f"{broken}: expected a `tokenizer.json`; found a file that `tokenizers` cannot"
        f" read (expected value at line 1 column 1). {KINDS}"
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        pieces([1], broken)


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (7, "expected something that turns ids into text; found int"),
        (lambda ids: ids, "expected text for a list of ids; found list"),
        (lambda ids: {}[ids[0]], "expected text for a list of ids; found KeyError (1)"),
    ],
)
def test_what_is_no_tokenizer_is_refused(tokenizer: Any, message: str) -> None:
    whole = f"`tokenizer`: {message}. {KINDS}"
    with pytest.raises(BatchError, match=f"^{re.escape(whole)}$"):
        pieces([1], tokenizer)


def test_a_decoder_that_panics_is_refused() -> None:
    """`Strip` looks for a fifth space in a token of one; a panic is no Exception."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(json.dumps(panicking()))
    assert pieces([1], tokenizer) == ["a" * 200 + "1"]
    message = r"^`tokenizer`: expected text for .* found PanicException \(index out of "
    with pytest.raises(BatchError, match=message):
        pieces([5], tokenizer)


@pytest.mark.parametrize("token_id", [-1, 2**31, 2**32, 2**63 - 1])
def test_an_id_that_no_tokenizer_has_is_its_number(
    of_bytes: Tokenizer, token_id: int
) -> None:
    assert pieces([token_id], of_bytes) == [f"⟨{token_id}⟩"]


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stand for transformers: only what a test puts into it is there."""
    module = ModuleType("transformers")
    monkeypatch.setitem(sys.modules, "transformers", module)
    return module


def test_a_name_is_looked_up_by_transformers(
    of_bytes: Tokenizer, transformers: ModuleType
) -> None:
    asked = []

    class AutoTokenizer:
        @staticmethod
        def from_pretrained(name: str, **options: object) -> object:
            asked.append((name, options))
            return Fast(of_bytes)

    transformers.AutoTokenizer = AutoTokenizer  # type: ignore[attr-defined]
    ids = of_bytes.encode(TEXT).ids
    assert "".join(pieces(ids, "someone/model-that-is-found")) == TEXT
    assert special_tokens("someone/model-that-is-found") == {256: "<|im_end|>"}
    assert asked == [("someone/model-that-is-found", {"trust_remote_code": False})]


def test_a_name_that_transformers_does_not_find_is_refused(
    transformers: ModuleType,
) -> None:
    class AutoTokenizer:
        @staticmethod
        def from_pretrained(name: str, **_: object) -> object:
            msg = f"no model {name}\nlong advice"
            raise OSError(msg)

    transformers.AutoTokenizer = AutoTokenizer  # type: ignore[attr-defined]
    message = (
        "no/model: expected a `tokenizer.json`; found no such file, and no such name "
        f"(no model no/model). {KINDS}"
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        pieces([1], "no/model")


@pytest.mark.usefixtures("transformers")
def test_a_name_without_transformers_is_refused() -> None:
    message = (
        "no/model: expected a `tokenizer.json`; found no such file, and no "
        f"`transformers` to find a name with. {KINDS}"
    )
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        special_tokens("no/model")


@pytest.mark.usefixtures("transformers")
@pytest.mark.parametrize("text", ["./a", "/a", "~/a", "a/b/c", "tokenizer.json"])
def test_what_is_like_a_path_is_never_looked_up(text: str) -> None:
    message = f"{text}: expected a `tokenizer.json`; found no such file. {KINDS}"
    with pytest.raises(LoadError, match=f"^{re.escape(message.removeprefix('./'))}$"):
        pieces([1], text)


def test_special_tokens_are_those_of_the_template(of_bytes: Tokenizer) -> None:
    of_bytes.add_tokens(["<tool_call>"])  # a word of its own, but no special one
    of_bytes.add_special_tokens(["<|image_pad|>"])
    expected = {256: "<|im_end|>", 258: "<|image_pad|>"}
    assert special_tokens(of_bytes) == expected
    for kind in (Fast, Slow, Processor):
        assert special_tokens(kind(of_bytes)) == expected
    assert special_tokens(None) == {}
    assert special_tokens(str) == {}

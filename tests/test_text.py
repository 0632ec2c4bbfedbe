"""Token ids to text: pieces join to the text, one per token, and bad input is told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from rounddiag.errors import BatchError, LoadError
from rounddiag.text import pieces

if TYPE_CHECKING:
    from pathlib import Path

KINDS = (
    "Pass the path of a `tokenizer.json`, a transformers tokenizer, or a callable"
    " that turns a list of ids into text."
)
TEXT = "hi 世界 👩‍💻\n\té<|im_end|>\n"


class Counting:
    """A tokenizer like those of transformers, that counts what it is asked."""

    def __init__(self, inner: Tokenizer) -> None:
        self.inner = inner
        self.num_calls = 0

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        self.num_calls += 1
        return str(self.inner.decode(ids, skip_special_tokens=skip_special_tokens))


@pytest.fixture
def of_bytes() -> Tokenizer:
    """One token per byte, and one special token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({sign: i for i, sign in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_end|>"])
    return tokenizer


def test_the_pieces_are_one_per_token_and_join_to_the_text(of_bytes: Tokenizer) -> None:
    ids = of_bytes.encode(TEXT).ids
    found = pieces(ids, of_bytes)
    assert len(found) == len(ids) == len(TEXT.encode()) - len("<|im_end|>") + 1
    assert "".join(found) == TEXT


def test_a_character_of_several_tokens_stands_at_the_first(of_bytes: Tokenizer) -> None:
    assert pieces(of_bytes.encode("a世b").ids, of_bytes) == ["a", "世", "", "", "b"]


def test_bytes_that_are_no_character_stay_apart(of_bytes: Tokenizer) -> None:
    first, second, _ = of_bytes.encode("世").ids
    ids = [first, second, *of_bytes.encode("aé").ids, second]
    assert pieces(ids, of_bytes) == ["\ufffd", "\ufffd", "a", "é", "", "\ufffd"]


def test_no_character_reaches_across_a_start(of_bytes: Tokenizer) -> None:
    ids = of_bytes.encode("éé").ids
    assert pieces(ids, of_bytes, starts=[0, 2]) == ["é", "", "é", ""]
    assert pieces(ids, of_bytes, starts=[1]) == ["\ufffd", "\ufffd", "é", ""]


def test_ids_without_text_are_shown_as_ids(of_bytes: Tokenizer) -> None:
    (known,) = of_bytes.encode("a").ids
    assert pieces([known, 99_999, -100], of_bytes) == ["a", "⟨99999⟩", "⟨-100⟩"]
    assert pieces([known, 3]) == [f"⟨{known}⟩", "⟨3⟩"]
    assert pieces([], of_bytes) == []


def test_a_tokenizer_comes_as_a_path_an_object_or_a_function(
    of_bytes: Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    of_bytes.save(str(path))
    ids = of_bytes.encode(TEXT).ids

    def decode(ids: list[int]) -> str:
        return str(of_bytes.decode(ids, skip_special_tokens=False))

    for tokenizer in (path, str(path), Counting(of_bytes), decode):
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


def test_the_space_before_a_word_is_kept() -> None:
    vocabulary = {"▁one": 0, "▁two": 1}
    words = Tokenizer(models.WordLevel(vocabulary, "▁one"))
    words.decoder = decoders.Metaspace()
    assert pieces([0, 1], words) == [" one", " two"]


def test_each_id_is_decoded_once(of_bytes: Tokenizer) -> None:
    tokenizer = Counting(of_bytes)
    pieces(of_bytes.encode("ab").ids * 500, tokenizer)
    assert tokenizer.num_calls == 4  # alone, and twice in a row, for two ids


def test_a_path_without_a_tokenizer_is_told(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    message = f"{missing}: expected a `tokenizer.json`; found no such file. {KINDS}"
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        pieces([1], missing)
    message = f"{tmp_path}: expected a `tokenizer.json`; found a folder. {KINDS}"
    with pytest.raises(LoadError, match=f"^{re.escape(message)}$"):
        pieces([1], str(tmp_path))


def test_a_file_that_is_no_tokenizer_is_told(tmp_path: Path) -> None:
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
    ],
)
def test_what_is_no_tokenizer_is_told(tokenizer: Any, message: str) -> None:
    whole = f"`tokenizer`: {message}. {KINDS}"
    with pytest.raises(BatchError, match=f"^{re.escape(whole)}$"):
        pieces([1], tokenizer)

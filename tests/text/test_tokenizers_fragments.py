"""Token ids to text: pieces join to the text, one per token."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models

from rounddiag.text import pieces

TEXT = "hi 世界 👩‍💻\n\té<|im_end|>\n"


class Counting:
    """A tokenizer like those of transformers, that counts what it is asked."""

    def __init__(self, inner: Tokenizer) -> None:
        self.inner = inner
        self.num_calls = 0

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        self.num_calls += 1
        return str(self.inner.decode(ids, skip_special_tokens=skip_special_tokens))


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


def test_the_space_before_a_word_is_kept() -> None:
    vocabulary = {"▁one": 0, "▁two": 1}
    words = Tokenizer(models.WordLevel(vocabulary, "▁one"))
    words.decoder = decoders.Metaspace()
    assert pieces([0, 1], words) == [" one", " two"]


def test_each_id_is_decoded_once(of_bytes: Tokenizer) -> None:
    tokenizer = Counting(of_bytes)
    pieces(of_bytes.encode("ab").ids * 500, tokenizer)
    assert tokenizer.num_calls == 4  # alone, and twice in a row, for two ids


def test_whitespace_is_shown_by_signs_on_request(of_bytes: Tokenizer) -> None:
    found = pieces(of_bytes.encode("a \n世").ids, of_bytes, visible_whitespace=True)
    assert found == ["a", "·", "↵", "世", "", ""]


def test_halves_of_a_character_are_joined_and_one_alone_is_a_fragment() -> None:
    halves = ["\ud83d", "\ude00", "a"]
    found = pieces([0, 1, 2, 0], lambda ids: "".join(halves[i] for i in ids))
    assert found == ["\N{GRINNING FACE}", "", "a", "\ufffd"]

"""The trainer's token ids beside those of the file and of the sampler."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.checks.tokens import IDS, IDS_AS_TEXT, IMAGE_TOKENS, INPUT_IDS, LENGTHS
from tests.checks.chats import (
    CLICK,
    DONE,
    LINE,
    PAD,
    PASSED,
    START,
    THINK,
    Broken,
    Chat,
    came_to,
    chat,
    untestable,
)


def sampled(*rows: list[int], **others: Any) -> Any:
    """Return two responses, and the ids that the sampler had for them."""
    return chat(
        [[THINK, CLICK, DONE], [START]],
        [[1, 0, 1], [1]],
        rollout_ids=tuple(torch.tensor(row, dtype=torch.int64) for row in rows),
        **others,
    )


def input_ids_result(**meta: str) -> tuple[str, str, tuple[int, ...]]:
    return came_to(INPUT_IDS, chat([[1]], [[1]], meta=meta))


def test_input_ids_are_what_the_loader_saw() -> None:
    assert input_ids_result(input_ids="equal") == PASSED
    differs = "sample 0 has 9, not 1, at position 0"
    assert input_ids_result(input_ids=differs) == ("failed", differs, ())
    assert input_ids_result() == untestable("needs `input_ids`")


@pytest.mark.parametrize("contract", [IDS, IDS_AS_TEXT, IMAGE_TOKENS, LENGTHS])
def test_equal_ids_pass(contract: Any) -> None:
    assert came_to(contract, sampled([THINK, CLICK, DONE], [START])) == PASSED
    assert came_to(contract, chat([[1]], [[1]])) == untestable("needs `rollout_ids`")
    assert came_to(contract, chat([], [], rollout_ids=())) == PASSED


def test_another_length_is_reported() -> None:
    batch = sampled([THINK, CLICK, DONE, LINE], [START])
    assert came_to(LENGTHS, batch) == (
        "failed",
        "1 sample with another length: sample 0 has 3 tokens by the trainer and 4 by"
        " the sampler",
        (0,),
    )
    assert came_to(IDS, batch) == PASSED


def test_other_ids_are_shown_with_those_around() -> None:
    batch = sampled([THINK, CLICK, LINE, DONE], [START])
    expected = (
        "1 sample with other ids: sample 0 round 1 position 2, after ⟨13⟩|⟨14⟩ the"
        " trainer has ⟨15⟩ and the sampler ⟨12⟩|⟨15⟩"
    )
    assert came_to(IDS, batch) == ("failed", expected, (0,))
    assert came_to(IDS_AS_TEXT, batch) == ("failed", expected, (0,))


def test_other_ids_are_shown_as_text_on_request() -> None:
    batch = sampled([THINK, CLICK, LINE, DONE], [LINE], tokenizer=Chat())
    assert came_to(IDS, batch)[1].startswith("2 samples with other ids: sample 0 round")
    assert came_to(IDS_AS_TEXT, batch)[1] == (
        "2 samples with other ids: sample 0 round 1 position 2, after <think>|click"
        " the trainer has done and the sampler ↵|done"
    )


def test_the_first_token_can_differ() -> None:
    batch = sampled([THINK, CLICK, DONE], [DONE])
    assert came_to(IDS, batch)[1] == (
        "1 sample with other ids: sample 1 round 0 position 0, after nothing the"
        " trainer has ⟨0⟩ and the sampler ⟨15⟩"
    )


def test_five_tokens_on_each_side_are_shown() -> None:
    ids = torch.arange(100, 120)
    batch = chat([ids.tolist()], [[1] * 20], rollout_ids=(ids.clone(),))
    assert batch.rollout_ids is not None
    batch.rollout_ids[0][10] = 0
    assert came_to(IDS, batch)[1] == (
        "1 sample with other ids: sample 0 round 0 position 10, after"
        " ⟨105⟩|⟨106⟩|⟨107⟩|⟨108⟩|⟨109⟩ the trainer has"
        " ⟨110⟩|⟨111⟩|⟨112⟩|⟨113⟩|⟨114⟩ and the sampler ⟨0⟩|⟨111⟩|⟨112⟩|⟨113⟩|⟨114⟩"
    )


def test_a_tokenizer_that_fails_leaves_the_ids() -> None:
    batch = sampled([LINE, CLICK, DONE], [START], tokenizer=Broken())
    assert came_to(IDS_AS_TEXT, batch)[1] == (
        "1 sample with other ids: sample 0 round 0 position 0, after nothing the"
        " trainer has ⟨13⟩|⟨14⟩|⟨15⟩ and the sampler ⟨12⟩|⟨14⟩|⟨15⟩"
    )


_blocks = st.lists(
    st.tuples(
        st.lists(st.sampled_from([THINK, CLICK, LINE]), min_size=1),
        *[st.integers(2, 9)] * 2,
    ),
    min_size=1,
    max_size=4,
)


def _with_pictures(blocks: list[tuple[list[int], int, int]], engine: int) -> list[int]:
    parts = [[*text, *[PAD] * sizes[engine]] for text, *sizes in blocks]
    return [token for part in parts for token in [*part, DONE]]


@given(_blocks, st.booleans())
def test_ids_that_differ_in_image_tokens_alone_are_no_other_text(
    blocks: list[tuple[list[int], int, int]], has_tokenizer: bool
) -> None:
    own, rollout = (_with_pictures(blocks, engine) for engine in (0, 1))
    num = own.count(PAD), rollout.count(PAD)
    tokenizer = Chat() if has_tokenizer else None

    def results(sampler: list[int]) -> list[tuple[str, str, tuple[int, ...]]]:
        ids = (torch.tensor(sampler), torch.tensor([START]))
        batch = chat(
            [own, [START]], [[1] * len(own), [1]], rollout_ids=ids, tokenizer=tokenizer
        )
        return [came_to(contract, batch) for contract in (IMAGE_TOKENS, IDS, LENGTHS)]

    images, *others = results(rollout)
    if num[0] == num[1]:
        assert images == PASSED  # the same number, elsewhere or nowhere
    else:
        assert others == [PASSED, PASSED]
        assert images == (
            "failed",
            "1 sample with another number of image tokens and the same text: sample 0"
            f" has {num[0]} by the trainer and {num[1]} by the sampler",
            (0,),
        )
    images, other, _ = results([START, *rollout[1:]])  # another text, too
    assert (images[0], other[0]) == ("passed", "failed")


def test_one_text_token_more_is_no_picture() -> None:
    batch = sampled([THINK, CLICK, CLICK, DONE], [START])
    assert came_to(IMAGE_TOKENS, batch) == PASSED
    assert came_to(LENGTHS, batch)[0] == "failed"

"""Image tokens beside the grids of the screenshots."""

from __future__ import annotations

from typing import Any

import pytest

from rounddiag.checks.images import NOT_WRITTEN, NUMBERS, SIZES
from rounddiag.vision import EncodedScreenshot
from tests.checks.chats import (
    CLICK,
    NO_TOKEN,
    PAD,
    PASSED,
    VIDEO,
    VISION_END,
    VISION_START,
    Chat,
    came_to,
    chat,
    picture,
    prompts,
    untestable,
)


def image_tokens(num: int) -> list[int]:
    return [VISION_START, *[PAD] * num, VISION_END]


def batch(response: list[int], *images: Any, **others: Any) -> Any:
    """Return a sample with a prompt of 2 image tokens and one generated token."""
    fields = {"images": (images,), "tokenizer": Chat(), **prompts(image_tokens(2))}
    mask = [0] * len(response) + [1]
    return chat([[*response, CLICK]], [mask], **{**fields, **others})


def test_as_many_tokens_as_the_grids_ask_for_pass() -> None:
    fine = batch(image_tokens(3), picture(1, 2, 4), picture(1, 6, 2))
    assert [came_to(contract, fine) for contract in (SIZES, NUMBERS, NOT_WRITTEN)] == [
        PASSED
    ] * 3


def test_another_number_of_tokens_is_reported() -> None:
    odd = batch(image_tokens(3), picture(1, 2, 4), picture(1, 4, 4))
    assert came_to(SIZES, odd) == (
        "failed",
        "1 screenshot with more or fewer image tokens than asked for: sample 0 "
        "screenshot 1 has 3 image tokens, its"
        " grid (1, 4, 4) asks for 4",
        (0,),
    )
    assert came_to(NUMBERS, odd) == PASSED


def test_another_number_of_blocks_is_reported() -> None:
    odd = batch(image_tokens(3), picture(1, 2, 4))
    assert came_to(NUMBERS, odd) == (
        "failed",
        "1 sample with more or fewer image blocks than screenshots: sample 0 has 2 "
        "image blocks and 1 screenshot",
        (0,),
    )
    assert came_to(SIZES, odd) == PASSED


def test_samples_whose_screenshots_a_file_does_not_keep_are_left_out() -> None:
    fields = {"images": ((picture(1, 2, 4),), ()), "tokenizer": Chat()}
    fields |= prompts(*[image_tokens(2)] * 2)  # with one block each, and one more below
    two = chat([[*image_tokens(3), CLICK]] * 2, [[0] * 5 + [1]] * 2, **fields)
    assert came_to(NUMBERS, two)[2] == (0,)


def test_stored_screenshots_have_no_grid() -> None:
    stored = batch(image_tokens(3), *[EncodedScreenshot(data=b"")] * 2)
    needed = untestable("needs `images` with their `image_grid_thw`")
    assert came_to(SIZES, stored) == needed
    assert came_to(NUMBERS, stored) == PASSED


def test_without_a_tokenizer_the_screenshots_tell_the_token() -> None:
    places = [picture(1, 2, 4, position=-3), picture(1, 4, 4)]
    odd = batch(image_tokens(3), *places, tokenizer=None)
    assert came_to(SIZES, odd)[0] == "failed"
    assert came_to(NOT_WRITTEN, odd) == PASSED
    nowhere = batch(image_tokens(3), picture(1, 2, 4, position=6), tokenizer=None)
    assert came_to(SIZES, nowhere) == untestable("needs `tokenizer`")


@pytest.mark.parametrize("contract", [SIZES, NUMBERS])
def test_what_is_missing_is_named(contract: Any) -> None:
    assert came_to(contract, batch([])) == untestable("needs `images`")
    assert came_to(contract, batch([], images=None)) == untestable("needs `images`")
    no_prompts = batch([], picture(1, 2, 2), prompt_ids=None)
    assert came_to(contract, no_prompts) == untestable("needs `prompt_ids`")


@pytest.mark.parametrize("token", [PAD, VIDEO, VISION_START, VISION_END])
def test_vision_tokens_that_the_model_wrote_are_reported(token: int) -> None:
    written = chat([[CLICK, token, token]], [[1, 1, 0]], tokenizer=Chat())
    assert came_to(NOT_WRITTEN, written) == (
        "failed",
        "1 token of the vision template, in 1 sample: sample 0 round 0 position 1",
        (0,),
    )


def test_written_vision_tokens_need_a_tokenizer_and_a_token() -> None:
    assert came_to(NOT_WRITTEN, chat([[1]], [[1]])) == untestable("needs `tokenizer`")
    assert came_to(NOT_WRITTEN, chat([[1]], [[0]], tokenizer=Chat())) == NO_TOKEN

"""Prompts that stand in the response a second time."""

from __future__ import annotations

from rounddiag.checks.tokens import NOT_REPEATED
from tests.checks.chats import EMPTY, PASSED, came_to, chat, prompts, untestable

ONES = [[1, 1, 1]] * 3
REPEATED = [[1, 2, 7], [3, 4, 7], [5, 6, 7]]


def test_prompts_in_most_responses_are_counted() -> None:
    batch = chat(REPEATED, ONES, **prompts([1, 2], [3, 4], [6, 5]))
    assert came_to(NOT_REPEATED, batch) == (
        "failed",
        "2 samples of 3 whose response begins with its prompt: samples 0, 1",
        (0, 1),
    )


def test_a_prompt_of_one_token_is_not_counted() -> None:
    batch = chat(REPEATED, ONES, **prompts([1], [3, 4], [5]))
    assert came_to(NOT_REPEATED, batch) == (
        "failed",
        "1 sample of 1 whose response begins with its prompt: sample 1",
        (1,),
    )


def test_a_few_responses_may_begin_with_their_prompt() -> None:
    batch = chat(REPEATED[:2], ONES[:2], **prompts([1, 2], [4, 3]))
    assert came_to(NOT_REPEATED, batch) == PASSED


def test_a_prompt_longer_than_its_response_is_not_in_it() -> None:
    batch = chat([[1], [2, 3]], [[1], [1, 1]], **prompts([1, 2, 3], [9, 9]))
    assert came_to(NOT_REPEATED, batch) == PASSED


def test_without_prompts_there_is_nothing_to_test() -> None:
    assert came_to(NOT_REPEATED, EMPTY) == untestable("needs `prompt_ids`")
    single = chat([[1]], [[1]], **prompts([1]))
    assert came_to(NOT_REPEATED, single) == untestable("no prompt has 2 tokens")

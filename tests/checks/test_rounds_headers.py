"""Rounds begin after the assistant's header of a chat template."""

from __future__ import annotations

from typing import Any

import pytest

from rounddiag.checks.rounds import STARTS
from tests.checks.chats import (
    CLICK,
    DONE,
    EMPTY,
    END,
    HEADER,
    LINE,
    NO_TOKEN,
    PASSED,
    QUESTION,
    START,
    THINK,
    Broken,
    Chat,
    came_to,
    chat,
    prompts,
    untestable,
)

# What the model writes, an observation, and what it writes again.
RESPONSE = [CLICK, END, *QUESTION, DONE, END, *HEADER, DONE, END]
MASK = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]


def checked(
    mask: list[int], response: list[int] | None = None, **others: Any
) -> tuple[str, str, tuple[int, ...]]:
    fields = {"tokenizer": Chat(), **prompts([*QUESTION, *HEADER]), **others}
    return came_to(STARTS, chat([response or RESPONSE], [mask], **fields))


def test_rounds_after_a_header_pass() -> None:
    assert checked(MASK) == PASSED


def test_a_mask_that_begins_too_late_is_reported() -> None:
    late = [*MASK[:10], 0, 1]
    assert checked(late) == (
        "failed",
        "1 token at the start of a run of the mask, without a header before it, in 1"
        " sample: sample 0 round 1 position 11; the first follows"
        " ↵click<|im_end|><|im_start|>user↵done<|im_end|><|im_start|>assistant↵done",
        (0,),
    )


def test_a_mask_that_begins_too_early_is_reported() -> None:
    early = [1] * 12
    response = [*HEADER, CLICK, END, *HEADER, CLICK, END, CLICK, END]
    result = checked(early, response, **prompts(QUESTION))
    assert result[1].endswith("; the first follows <|im_start|>user↵")


@pytest.mark.parametrize("rest", [[], [LINE], [LINE, THINK], [LINE, THINK, LINE]])
def test_templates_may_begin_the_thought(rest: list[int]) -> None:
    assert checked(MASK, **prompts([*HEADER[:2], *rest])) == PASSED


def test_without_prompts_the_first_round_is_not_looked_at() -> None:
    batch = chat([RESPONSE], [MASK], tokenizer=Chat())
    assert came_to(STARTS, batch) == PASSED
    first = chat([[CLICK, END]], [[1, 1]], tokenizer=Chat())
    assert came_to(STARTS, first) == untestable("needs `prompt_ids`")


def test_a_prompt_of_another_sample_is_not_looked_at() -> None:
    batch = chat([[DONE], [DONE]], [[1], [1]], **prompts(HEADER, []), tokenizer=Chat())
    assert came_to(STARTS, batch) == PASSED


def test_without_a_template_that_is_known_it_is_not_testable() -> None:
    assert checked(MASK, tokenizer=None) == untestable("needs `tokenizer`")
    assert checked([1], [CLICK], **prompts([START, DONE])) == untestable(
        "no round begins after a known assistant header"
    )
    assert checked(MASK, tokenizer=Broken()) == untestable(
        r"the `tokenizer` fails: RuntimeError: no\nvocabulary"
    )


def test_a_batch_of_no_rounds_has_nothing_to_follow() -> None:
    assert came_to(STARTS, EMPTY) == NO_TOKEN

"""Updates that are wrong although the log-probs agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag import Batch
from rounddiag.batch.trajectories import join_rows
from rounddiag.checks.advantages import ADVANTAGES_DIFFER, ADVANTAGES_REACH
from rounddiag.checks.images import NUMBERS
from rounddiag.checks.rounds import ENDS, NOT_CUT
from rounddiag.checks.update import RESUMED, SEPARATED
from tests.checks.chats import (
    CLICK,
    DONE,
    END,
    HEADER,
    LINE,
    NO_TOKEN,
    PAD,
    PASSED,
    START,
    USER,
    VISION_END,
    VISION_START,
    Chat,
    came_to,
    chat,
    picture,
    prompts,
    untestable,
)

MASK = [1, 1, 0, 1, 1]
IDS = [CLICK, END, 0, DONE, END]


def trained(*rows: list[float], **others: Any) -> Batch:
    """Return samples of two rounds with these advantages."""
    advantages = [torch.tensor(row) for row in rows]
    num = len(rows)
    return chat([IDS] * num, [MASK] * num, advantages=advantages, **others)


LAST = [0.0, 0.0, 9.0, 1.5, 1.5]
BOTH = [0.5, 0.5, 0.0, 0.5, 0.5]


def test_advantages_of_the_last_round_alone_are_reported() -> None:
    batch = trained(LAST, BOTH, LAST)
    status, detail, samples = came_to(ADVANTAGES_REACH, batch)
    assert (status, samples) == ("failed", (0, 2))
    assert detail == (
        "2 samples in which the advantage is 0 in all rounds but the last: samples 0, 2"
        "; 4 trained tokens without an advantage"
    )
    tokens = ADVANTAGES_REACH.check(batch).tokens
    assert tokens is not None
    assert tokens.tolist() == [0, 1, 10, 11]


@pytest.mark.parametrize(
    "rows",
    [
        [BOTH, BOTH],
        [LAST, BOTH],
        [[0.5, 0.5, 0.0, 0.0, 0.0]],
        [[0.0] * 5],
        [[0.0, 0.5, 0.0, 1.5, 1.5]],
    ],
    ids=["all rounds", "one of two", "the first round", "none", "a part of a round"],
)
def test_advantages_that_reach_an_earlier_round_pass(rows: list[list[float]]) -> None:
    assert came_to(ADVANTAGES_REACH, trained(*rows)) == PASSED


def test_a_round_that_the_loss_leaves_out_needs_no_advantage() -> None:
    masks = [torch.tensor([0, 0, 0, 1, 1])]
    assert came_to(ADVANTAGES_REACH, trained(LAST, loss_mask=masks)) == PASSED


ZERO = [0.0] * 5
TWO = {"group_ids": ("a", "a", "b", "b")}


def test_advantages_of_0_are_reported_where_the_rewards_of_a_group_differ() -> None:
    batch = trained(*[ZERO] * 4, **TWO, rewards=torch.tensor([1.0, 1.0, 0.0, 2.0]))
    assert came_to(ADVANTAGES_DIFFER, batch) == (
        "failed",
        "advantages are 0 at all 16 trained tokens, and the rewards of 1 group differ:"
        " sample 2 has 0",
        (2, 3),
    )


@pytest.mark.parametrize(
    ("rows", "rewards"),
    [
        ([ZERO] * 4, [1.0, 1.0, 0.0, 0.0]),
        ([ZERO, ZERO, ZERO, BOTH], [1.0, 0.0, 1.0, 0.0]),
        ([ZERO] * 4, [1.0, float("nan"), 0.0, float("nan")]),
    ],
    ids=["equal in each group", "one is not 0", "the others are unknown"],
)
def test_advantages_of_0_are_normal_else(
    rows: list[list[float]], rewards: list[float]
) -> None:
    batch = trained(*rows, **TWO, rewards=torch.tensor(rewards))
    assert came_to(ADVANTAGES_DIFFER, batch) == PASSED


def test_without_advantages_or_rewards_they_are_not_testable() -> None:
    for contract in (ADVANTAGES_REACH, ADVANTAGES_DIFFER):
        assert came_to(contract, chat([IDS], [MASK])) == untestable(
            "needs `advantages`"
        )
        none = chat([[1]], [[0]], advantages=[torch.ones(1)])
        assert came_to(contract, none) == NO_TOKEN
    assert came_to(ADVANTAGES_DIFFER, trained(ZERO)) == untestable(
        "`advantages` are 0 at all 4 tokens; `rewards` would say whether that is right"
    )


PROMPT = [START, USER, LINE, CLICK, END, LINE, START]
GAP = [LINE, START, USER, LINE]


def turns(*gaps: list[int], prompt: list[int] = PROMPT) -> Batch:
    """Return a sample a gap: two rounds that end with their turn, and what follows."""
    rows = [[CLICK, END, *gap, DONE, END] for gap in gaps]
    masks = [[1, 1, *[0] * len(gap), 1, 1] for gap in gaps]
    return chat(rows, masks, tokenizer=Chat(), **prompts(*[prompt] * len(gaps)))


def test_a_separator_that_only_prompts_have_is_reported() -> None:
    assert came_to(SEPARATED, turns(GAP, GAP)) == PASSED
    assert came_to(SEPARATED, turns(GAP[1:], GAP, GAP[1:])) == (
        "failed",
        "2 turn ends are followed by <|im_start|>, in 2 samples; in the prompts,"
        " <|im_end|> is followed by ↵ first",
        (0, 2),
    )


def test_another_turn_than_that_of_the_prompts_is_no_lost_separator() -> None:
    assert came_to(SEPARATED, turns([USER, LINE])) == PASSED


@pytest.mark.parametrize(
    "prompt",
    [[START, USER], [END, LINE, START, END, START, USER], [END, START, START, CLICK]],
    ids=["no turn ends", "with and without", "none to tell"],
)
def test_without_one_separator_in_the_prompts_it_is_not_testable(
    prompt: list[int],
) -> None:
    assert came_to(SEPARATED, turns(GAP, prompt=prompt)) == untestable(
        "needs prompts in which one separator follows the end of each turn"
    )


def test_samples_of_one_round_have_no_border() -> None:
    assert came_to(SEPARATED, chat([[END]], [[1]], **prompts(PROMPT))) == untestable(
        "no row has more than one round"
    )
    assert came_to(SEPARATED, chat([IDS], [MASK])) == untestable("needs `prompt_ids`")


def test_a_round_that_resumes_an_open_turn_is_reported() -> None:
    whole = [CLICK, END, LINE, DONE, END]
    parts = [CLICK, CLICK, CLICK, DONE, END]
    batch = chat([whole, parts, whole], [MASK] * 3, tokenizer=Chat())
    assert came_to(RESUMED, batch[0]) == PASSED
    # The token between the parts has log-probs: without them it is no hole.
    batch.log_probs("rollout")[7] = 0
    assert came_to(RESUMED, batch) == (
        "failed",
        "1 token at which a round goes on with an open turn, in 1 sample: sample 1"
        " round 1 position 3",
        (1,),
    )


def test_a_hole_of_rejection_is_no_resumed_turn() -> None:
    rows = [[CLICK, END, LINE, DONE, END]] * 2 + [[CLICK, CLICK, CLICK, DONE, END]]
    assert came_to(RESUMED, chat(rows, [MASK] * 3, tokenizer=Chat())) == PASSED


def test_beside_holes_a_round_that_goes_on_may_be_one_too() -> None:
    whole, parts = [CLICK, END, LINE, DONE, END], [CLICK, CLICK, CLICK, DONE, END]
    rows = [whole, parts, parts, whole, whole]
    batch = chat(rows, [MASK] * 5, tokenizer=Chat())
    batch.log_probs("rollout")[7] = 0
    why = "the mask has holes, of which a round that goes on may be one"
    assert came_to(RESUMED, batch) == untestable(why)


def test_a_turn_that_the_environment_ends_is_no_resumed_one() -> None:
    cut = [CLICK, CLICK, END, START, DONE, END]
    rows = [cut, [CLICK, END, LINE, START, DONE, END]]
    masks = [[1, 1, 0, 0, 1, 1], [1, 1, 0, 0, 1, 1]]
    batch = chat([*rows, rows[1]], [*masks, masks[1]], tokenizer=Chat())
    assert came_to(RESUMED, batch) == PASSED


def test_where_rounds_have_no_end_of_turn_none_resumes() -> None:
    batch = chat([[CLICK, LINE, DONE], [END, 0, 0]], [[1, 0, 1], [1, 0, 0]])
    batch = replace(batch, tokenizer=Chat())
    assert came_to(RESUMED, batch) == untestable(
        "rounds do not end with a known end of turn"
    )


FIRST = [START, USER, LINE, CLICK, END, LINE, *HEADER]


def step_rows(*rows: tuple[list[int], list[int], list[int]], **others: Any) -> Batch:
    """Return one sample, joined of rows of prompt, response and mask."""
    batch = chat(
        [response for _, response, _ in rows],
        [mask for *_, mask in rows],
        sample_columns={"name": np.zeros(len(rows), int)},
        **{**prompts(*(prompt for prompt, *_ in rows)), **others},
    )
    return replace(join_rows(batch, "name", "row"), tokenizer=Chat())


def test_where_rows_were_joined_no_text_goes_on() -> None:
    whole = (FIRST, [CLICK, END], [1, 1])
    # Its prompt has no end of a turn, and the first token of a turn begins it.
    cut, later = (FIRST, [CLICK, CLICK], [1, 1]), (HEADER, [DONE, END], [1, 1])
    joined = step_rows(whole, later)
    assert came_to(SEPARATED, joined) == untestable("no row has more than one round")
    assert came_to(RESUMED, step_rows(whole, cut, later, later)) == PASSED
    assert came_to(ENDS, step_rows(cut, later)) == PASSED
    assert came_to(NOT_CUT, step_rows(cut, cut, later))[1] == (
        "1 sample whose response does not end with its turn: sample 0"
    )


def test_a_lost_separator_inside_a_row_is_found_beside_joins() -> None:
    turns_of = ([CLICK, END, START, USER, LINE, DONE, END], [1, 1, 0, 0, 0, 1, 1])
    joined = step_rows((FIRST, *turns_of), (FIRST, [CLICK, END], [1, 1]))
    status, detail, _ = came_to(SEPARATED, joined)
    assert (status, detail.split(",")[0]) == (
        "failed",
        "1 turn end is followed by <|im_start|>",
    )


def test_pictures_of_some_joined_rows_are_not_compared_with_all_blocks() -> None:
    seen = [*FIRST, VISION_START, PAD, VISION_END, *HEADER]
    row = (seen, [CLICK, END], [1, 1])
    some = (picture(1, 2, 2),)
    assert came_to(NUMBERS, step_rows(row, images=(some,))) == PASSED
    # The second row has the picture of the first, and one more.
    more = ([*seen, *seen], [CLICK, END], [1, 1])
    assert came_to(NUMBERS, step_rows(row, more, images=((), some))) == untestable(
        "no sample has the screenshots of all its rows"
    )
    others = tuple(picture(1, 2, size) for size in (2, 4, 6))
    assert came_to(NUMBERS, step_rows(row, row, images=((), others)))[0] == "failed"

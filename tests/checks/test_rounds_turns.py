"""Rounds end with an end-of-turn token, or where the response was cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.checks.rounds import ENDS, NOT_CUT, STOPS
from tests.checks.chats import (
    CLICK,
    DONE,
    EMPTY,
    END,
    PASSED,
    Broken,
    Chat,
    came_to,
    chat,
    untestable,
)

BOTH = [ENDS, NOT_CUT, STOPS]


@pytest.mark.parametrize("contract", BOTH)
def test_rounds_that_end_with_their_turn_pass(contract: Any) -> None:
    batch = chat([[CLICK, END, 0, DONE, END]], [[1, 1, 0, 1, 1]], tokenizer=Chat())
    assert came_to(contract, batch) == PASSED


def test_a_mask_that_ends_too_early_is_reported() -> None:
    batch = chat(
        [[CLICK, END, 0, DONE, END], [END]], [[1, 0, 0, 1, 1], [1]], tokenizer=Chat()
    )
    assert came_to(ENDS, batch) == (
        "failed",
        "1 token at the end of a run of the mask that has no end of turn, in 1 sample:"
        " sample 0 round 0 position 0",
        (0,),
    )
    assert came_to(NOT_CUT, batch) == PASSED


def test_a_mask_that_goes_on_after_the_turn_has_its_end() -> None:
    """The end of the turn is trained, and the token of the template after it too."""
    rows = [[CLICK, END, 0, 0, DONE, END], [CLICK, DONE, 0, 0, DONE, END]]
    batch = chat(rows, [[1, 1, 1, 0, 1, 1]] * 2, tokenizer=Chat())
    assert came_to(ENDS, batch) == (
        "failed",
        "1 token at the end of a run of the mask that has no end of turn, in 1 sample:"
        " sample 1 round 0 position 2; "
        "1 token at the end of a run of the mask that goes on after the end of a"
        " turn, in 1 sample: sample 0 round 0 position 2",
        (0, 1),
    )


@pytest.mark.parametrize(
    ("masks", "detail", "samples"),
    [
        # Both rounds of sample 0, and the one of sample 1, lack their end.
        ([[1, 0, 0, 1, 0], [1, 0]], "the end token is in no mask, in 2 of 2", (0, 1)),
        # Round 0 of sample 0 has it, and no last round has.
        (
            [[1, 1, 0, 1, 0], [1, 0]],
            "the end token of the last round is in no mask, in 2 of 2",
            (0, 1),
        ),
    ],
)
def test_ends_that_no_mask_includes_are_never_trained(
    masks: Any, detail: str, samples: Any
) -> None:
    batch = chat([[CLICK, END, 0, DONE, END], [DONE, END]], masks, tokenizer=Chat())
    status, text, rows = came_to(STOPS, batch)
    assert (status, rows) == ("failed", samples)
    assert text.startswith(detail)
    assert STOPS.check(batch).kind == "update"
    assert came_to(ENDS, batch)[0] == "not testable"  # of single rounds it says nothing


@pytest.mark.parametrize(
    "masks",
    [
        [[1, 0, 0, 1, 1], [1, 0]],  # one answer was cut off, and the template ended it
        [[1, 0, 0, 1, 1], [1, 1]],  # inner rounds stop at a text of their own
    ],
)
def test_an_end_that_a_template_adds_is_no_fault(masks: Any) -> None:
    batch = chat([[CLICK, END, 0, DONE, END], [DONE, END]], masks, tokenizer=Chat())
    assert came_to(STOPS, batch) == PASSED


@pytest.mark.parametrize(("num_cut", "status"), [(2, "passed"), (1, "failed")])
def test_most_rounds_must_be_followed_by_an_end(num_cut: int, status: str) -> None:
    # Two rounds are followed by an end of turn, and one or two by the end of the row.
    rows = [[CLICK, END]] * 2 + [[CLICK]] * num_cut
    masks = [[1, 0]] * 2 + [[1]] * num_cut
    batch = chat(rows, masks, tokenizer=Chat())
    assert came_to(STOPS, batch)[0] == status


@pytest.mark.parametrize(
    ("reasons", "status"),
    [
        (["length", "length"], "not testable"),
        (["length", "stop"], "failed"),
        ([None, 3], "failed"),
    ],
)
def test_rounds_that_met_the_limit_show_nothing_of_their_ends(
    reasons: Any, status: str
) -> None:
    batch = chat([[CLICK, END], [DONE, END]], [[1, 0], [1, 0]], tokenizer=Chat())
    columns = {
        "sample": np.arange(2),
        "round": np.zeros(2, dtype=np.int64),
        "finish_reason": np.array(reasons, dtype=object),
    }
    assert came_to(STOPS, replace(batch, round_columns=columns))[0] == status


def test_a_response_that_is_cut_off_is_reported() -> None:
    batch = chat([[END], [END, 0, CLICK]], [[1], [1, 0, 1]], tokenizer=Chat())
    assert came_to(ENDS, batch) == PASSED
    assert came_to(NOT_CUT, batch) == (
        "failed",
        "1 sample whose response does not end with its turn: sample 1",
        (1,),
    )


def test_the_end_of_a_response_is_before_its_padding() -> None:
    batch = type(EMPTY).from_padded(
        response_ids=torch.tensor([[END, 0, CLICK, 0]]),
        response_mask=torch.tensor([[1, 0, 1, 0]]),
        rollout_log_probs=torch.zeros(1, 4),
        old_log_probs=torch.zeros(1, 4),
        lengths=torch.tensor([3]),
        tokenizer=Chat(),
    )
    assert came_to(NOT_CUT, batch)[2] == (0,)


def test_rounds_that_ids_divide_are_one_run_of_the_mask() -> None:
    ids = [torch.tensor([0, 0, 1, 1])]
    batch = chat(
        [[CLICK, DONE, CLICK, END]], [[1, 1, 1, 1]], round_ids=ids, tokenizer=Chat()
    )
    assert batch.num_rounds == 2
    assert came_to(ENDS, batch) == PASSED


@pytest.mark.parametrize("contract", BOTH)
def test_without_a_template_that_is_known_it_is_not_testable(contract: Any) -> None:
    assert came_to(contract, chat([[CLICK]], [[1]])) == untestable("needs `tokenizer`")
    assert came_to(contract, chat([[CLICK]], [[1]], tokenizer=Chat())) == untestable(
        "no response contains a known end-of-turn token"
    )
    assert came_to(contract, chat([[CLICK]], [[1]], tokenizer=Broken())) == untestable(
        r"the `tokenizer` fails: RuntimeError: no\nvocabulary"
    )


@pytest.mark.parametrize("contract", BOTH)
def test_a_callable_names_no_special_tokens(contract: Any) -> None:
    status, detail, _ = came_to(contract, chat([[END]], [[1]], tokenizer=lambda _: "x"))
    assert status == "not testable"
    assert detail.startswith(
        "needs another `tokenizer`: its special tokens are none of"
    )

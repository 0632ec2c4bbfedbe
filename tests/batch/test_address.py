"""Addresses of places, written and read."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rounddiag import Batch
from rounddiag.batch.address import Address
from rounddiag.errors import BatchError

MASK = [[1, 1, 0, 1, 0], [0, 1, 0, 0, 0], [1, 0, 1, 0, 1]]


def batch(ids: tuple[str, ...] | None, step: int | None = 40) -> Batch:
    zeros = torch.zeros(3, 5)
    return Batch.from_padded(
        response_ids=torch.ones(3, 5, dtype=torch.int64),
        response_mask=torch.tensor(MASK),
        rollout_log_probs=zeros,
        old_log_probs=zeros,
        sample_ids=ids,
        step=step,
    )


IDS = ("task-08/1", "task-08/2", "7")
TWICE = ("a", "a", "b / r1")


@pytest.mark.parametrize(
    ("ids", "step", "place", "text"),
    [
        (IDS, 40, (0, 1, 0), "step 40 / task-08/1 / r1 / t0"),
        (IDS, None, (0, 0, 1), "task-08/1 / r0 / t1"),
        (IDS, 40, (2, 1, None), "step 40 / 7 / r1"),
        (IDS, 40, (1, None, None), "step 40 / task-08/2"),
        (None, 40, (1, 0, 0), "step 40 / sample 1 / r0 / t0"),
        (TWICE, None, (1, 0, 0), "sample 1 / r0 / t0"),
        (TWICE, None, (2, 2, 0), "b / r1 / r2 / t0"),
    ],
)
def test_a_place_is_found_again_by_its_address(
    ids: tuple[str, ...] | None,
    step: int | None,
    place: tuple[int, int | None, int | None],
    text: str,
) -> None:
    named = batch(ids, step)
    assert str(Address.of(named, *place)) == text
    assert Address.parse(text).locate(named) == place


def test_a_number_is_a_sample_unless_it_is_an_id() -> None:
    assert Address.parse("2 / r1").locate(batch(None)) == (2, 1, None)
    assert Address.parse("7").locate(batch(IDS)) == (2, None, None)
    assert Address.parse(" 1 ").locate(batch(IDS)) == (1, None, None)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "expected a place such as `step 40 / task-08/1 / r3 / t17`"),
        ("step 39 / task-08/1", "expected step 40; found step 39"),
        ("task-09/1", "found 'task-09/1': 0 of 3 samples"),
        ("3", "a number below 3; found 3: 0 of 3 samples"),
        ("7 / r3", "expected a round of 7, up to 2; found r3. Correct `7 / r3`"),
        ("7 / r0 / t1", "expected one of 1 token, from t0; found t1"),
    ],
)
def test_a_place_that_is_not_there_is_named(text: str, wrong: str) -> None:
    with pytest.raises(BatchError) as error:
        Address.parse(text).locate(batch(IDS))
    assert wrong in str(error.value)


@pytest.mark.parametrize(
    "address",
    [
        *("9" * 5000, "sample " + "9" * 5000, "x / r" + "9" * 5000),
        *("x / r0 / t" + "9" * 5000, "step " + "9" * 5000 + " / x", "9" * 19),
        *(5, None, ["x"], b"x", ("x", 0)),
    ],
)
def test_a_number_of_any_length_and_any_type_is_a_clear_error(address: Any) -> None:
    with pytest.raises(BatchError) as caught:
        Address.parse(address).locate(batch(("x", "y", "z")))
    assert len(str(caught.value)) < 12_000

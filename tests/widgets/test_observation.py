"""A stretch between rounds, token by token."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from rounddiag.errors import FrameError
from rounddiag.widgets.sample_view import Facts, observation
from rounddiag.widgets.view import packed
from tests.widgets.samples import HOSTILE, worded

PAD = "<|image_pad|>"


def test_a_stretch_has_its_pieces_and_says_which_are_of_a_picture() -> None:
    batch = worded([["a"]], between=["x", PAD, PAD, "y"], prompt=["p"], special=[PAD])
    found = observation(batch, 0, -1, 4)
    assert found["pieces"] == ["p", "x", PAD, PAD, "y"]
    assert found["is_image"].tolist() == [0, 0, 1, 1, 0]
    assert found["is_image"].dtype == "uint8"
    inner = observation(batch, 0, 1, 2, Facts(batch))
    assert (inner["pieces"], inner["is_image"].tolist()) == ([PAD], [1])


def test_an_empty_stretch_is_nothing() -> None:
    found = observation(worded([["a"]]), 0, 1, 1)
    assert (found["pieces"], found["is_image"].tolist()) == ([], [])


@pytest.mark.parametrize(("start", "stop"), [(-2, 1), (0, 3), (1, 0), (9, 9)])
def test_a_stretch_that_is_not_there_is_an_error(start: int, stop: int) -> None:
    batch = worded([["a"]], prompt=["p"])
    message = (
        "`start, stop`: expected positions from -1 to 2, the lower one first; found"
        f" {start}, {stop}. Count from the response's start; the prompt is negative."
    )
    with pytest.raises(FrameError, match=f"^{re.escape(message)}$"):
        observation(batch, 0, start, stop)


def test_a_sample_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FrameError, match=r"^`sample`: expected a sample from 0 to 0;"):
        observation(worded([["a"]]), 1, 0, 1)


def test_a_redacted_batch_shows_squares() -> None:
    batch = worded([["a"]], between=[PAD, "x"], special=[PAD])
    found = observation(replace(batch, meta={"redacted": True}), 0, 0, 2)
    assert (found["pieces"], found["is_image"].tolist()) == (["□", "□"], [0, 0])


def test_without_a_tokenizer_ids_stand_for_text() -> None:
    batch = replace(worded([["a"]], between=["x", "y"]), tokenizer=None)
    assert observation(batch, 0, 0, 2)["pieces"] == ["⟨0⟩", "⟨1⟩"]


def test_hostile_text_is_valid_unicode_in_the_message() -> None:
    batch = worded([["a"]], between=HOSTILE)
    plain, _ = packed(observation(batch, 0, 0, len(HOSTILE)))
    told = json.loads(json.dumps(plain, ensure_ascii=False).encode())
    assert told["pieces"][0] == "<script>alert(1)</script>"
    assert told["pieces"][HOSTILE.index("\ud83d")] == "\ufffd"

"""The frame of the points of actions, against the size of the pictures."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rounddiag import Batch
from rounddiag.checks.coordinates import FRAME
from rounddiag.vision import EncodedScreenshot
from tests.checks.chats import PASSED, came_to, chat, picture, untestable

WIDTH, HEIGHT = 1600, 1200


def shown(*samples: list[str], width: int = WIDTH) -> Batch:
    """Return samples whose rounds are these texts, after one picture each."""
    words = dict.fromkeys(text for rounds in samples for text in rounds)
    ids = {text: number for number, text in enumerate(words, 1)}
    names = {number: text for text, number in ids.items()}
    buffer = io.BytesIO()
    Image.new("RGB", (width, HEIGHT)).save(buffer, format="PNG")
    shot = EncodedScreenshot(data=buffer.getvalue(), round=0)
    rows = [[token for text in texts for token in (ids[text], 0)] for texts in samples]
    return chat(
        rows,
        [[1, 0] * len(texts) for texts in samples],
        images=((shot,),) * len(samples),
        tokenizer=lambda token_ids: "".join(names.get(i, "") for i in token_ids),
    )


def click(x: float, y: float) -> str:
    return f"so: click(start_box='({x},{y})')"


def test_points_inside_of_the_picture_pass() -> None:
    batch = shown([click(1600, 1200), "wait()"], [click(0, 0)])
    assert came_to(FRAME, batch) == PASSED


def test_points_outside_are_counted_with_the_frame_that_all_fit() -> None:
    batch = shown([click(100, 990), click(700, 20)], [click(3, 4)], width=640)
    assert came_to(FRAME, batch) == (
        "failed",
        "1 of 3 points outside of the picture, read as pixels of the picture that the"
        " model saw: sample 0 round 1 has (700, 20) of 640 x 1200; all fit thousandths",
        (0,),
    )


def test_points_that_never_pass_1000_may_be_thousandths() -> None:
    # One click a sample inside of 1000 / 1600 * 1000 / 1200 = 0.521 of the picture:
    # 0.521 ** 10 = 0.0015, 0.521 ** 11 = 0.0008.
    rows = [[click(900, 950), click(10, 20)]] * 11
    assert came_to(FRAME, shown(*rows[:10])) == PASSED
    assert came_to(FRAME, shown(*rows)) == (
        "failed",
        "no point of 11 samples is beyond 1000 in pictures of 1600 x 1200: they may be"
        " thousandths, and not pixels of the picture that the model saw",
        (),
    )
    assert came_to(FRAME, shown(*rows, [click(1001, 3)])) == PASSED


def test_a_frame_that_changes_between_rounds_is_reported() -> None:
    batch = shown([click(30, 40), click(31, 40), click(0.5, 0.25)], [click(3, 4)])
    assert came_to(FRAME, batch) == (
        "failed",
        "actions are in pixels of the picture that the model saw in 3 rounds and in"
        " fractions in 1: sample 0 round 2",
        (0,),
    )


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (chat([[1]], [[1]]), "needs `tokenizer`"),
        (chat([[1]], [[1]], tokenizer=str), "needs `images`"),
        (shown(["wait()"]), "no round has an action with a point"),
        (
            chat(
                [[1]],
                [[1]],
                images=((picture(1, 2, 2),),),
                tokenizer=lambda ids: "pyautogui.click(3, 4)" * len(ids),
            ),
            "no size of the picture is known",
        ),
    ],
    ids=["no tokenizer", "no pictures", "no point", "the screen's size is unknown"],
)
def test_what_cannot_be_compared_is_not_testable(batch: Batch, why: str) -> None:
    assert came_to(FRAME, batch) == untestable(why)


def test_points_of_a_batch_of_text_and_recorded_actions_are_read() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (640, HEIGHT)).save(buffer, format="PNG")
    shot = EncodedScreenshot(data=buffer.getvalue())
    turns = [("user", "Go.", [shot]), ("assistant", click(700, 20)), ("user", "ok")]
    columns = {
        "sample": np.array([0, 0]),
        "round": np.array([0, 1]),
        "action": np.array([None, "click(start_box='(3,1300)')"], dtype=object),
    }
    batch = Batch.from_turns(
        [[*turns, ("assistant", "I click.")]], round_columns=columns
    )
    assert came_to(FRAME, batch) == (
        "failed",
        "2 of 2 points outside of the picture, read as pixels of the picture that the"
        " model saw: sample 0 round 0 has (700, 20) of 640 x 1200",
        (0,),
    )
    inside = [("user", "Go.", [shot]), ("assistant", click(640, 20))]
    assert came_to(FRAME, Batch.from_turns([inside])) == PASSED
    waits = Batch.from_turns([[("user", "Go.", [shot]), ("assistant", "I wait.")]])
    why = "no round has an action with a point"
    assert came_to(FRAME, waits) == untestable(why)


def _screen(width: int, height: int) -> EncodedScreenshot:
    buffer = io.BytesIO()
    Image.new("1", (width, height)).save(buffer, format="PNG")
    return EncodedScreenshot(data=buffer.getvalue())


_sizes = st.lists(
    st.tuples(st.integers(1, 1600), st.integers(1, 1600)), min_size=1, max_size=4
)


@given(st.lists(_sizes, min_size=1, max_size=3), st.data())
def test_a_point_in_a_picture_that_was_seen_is_in_the_frame(
    samples: list[list[tuple[int, int]]], data: st.DataObject
) -> None:
    """Sizes change within a trajectory, as with zooms, rotations and whole pages."""
    turns, num_off = [], 0
    for sizes in samples:
        rows: list[Any] = [("user", "Go.", [])]
        for index, size in enumerate(sizes):
            seen = sizes[: index + 1]
            width, height = data.draw(st.sampled_from(seen))
            x, y = data.draw(st.integers(0, width)), data.draw(st.integers(0, height))
            is_off = data.draw(st.integers(0, 4)) == 0
            x += is_off * max(width for width, _ in seen) + is_off
            num_off += is_off
            rows += [("user", "", [_screen(*size)]), ("assistant", click(x, y))]
        turns.append(rows)
    status, detail, _ = came_to(FRAME, Batch.from_turns(turns))
    number = sum(map(len, samples))
    if num_off:
        points = f"{number} point{'s' * (number > 1)}"
        assert detail.startswith(f"{num_off} of {points} outside of the picture")
    else:
        assert status == "passed" or detail.startswith("no point of ")


def test_what_may_be_thousandths_is_measured_on_the_picture_of_the_click() -> None:
    small, large = _screen(800, 900), _screen(1600, 1200)
    rows = [("user", "Go.", [large]), ("assistant", "I wait.")]
    rows += [("user", "", [small]), ("assistant", click(700, 20))]
    assert came_to(FRAME, Batch.from_turns([rows] * 20)) == PASSED
    rows[2] = ("user", "", [large])
    assert came_to(FRAME, Batch.from_turns([rows] * 20))[0] == "failed"

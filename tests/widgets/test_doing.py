"""What the agent did, in few words and at its true place, or at none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from rounddiag.vision import Action, EncodedScreenshot, PatchScreenshot
from rounddiag.widgets.images import actions_of, label_of
from tests.widgets.samples import HOSTILE, shot

if TYPE_CHECKING:
    from rounddiag.vision import Screenshot

Point = tuple[float, float]

QWEN = (
    '<tool_call>{{"name": "computer_use", "arguments": {{"action": "{}",'
    ' "coordinate": [{}, {}]}}}}</tool_call>'
)
REBUILT = PatchScreenshot(
    patches=lambda: torch.ones(4, 3 * 2 * 14 * 14), grid_thw=(1, 2, 2)
)


def point_of(text: str, screenshot: Screenshot | None) -> Point | None:
    (found,) = actions_of([text], [screenshot])
    return found["point"]  # type: ignore[no-any-return] # a dictionary of anything


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("click(640, 120)", "click (640, 120)"),
        ("pyautogui.rightClick(3, 4)", "right click (3, 4)"),
        ("click(start_box='(0.25,0.5)')", "click (0.25, 0.5)"),
        (QWEN.format("right_click", 3, 4), "right click (3, 4)"),
        (QWEN.format("double_click", 3, 4), "double click (3, 4)"),
        ("type('hello')", 'type "hello"'),
        ("scroll(down)", "scroll down"),
        ("hotkey(key='ctrl c')", "key ctrl+c"),
        ("drag(start_box='(1,2)', end_box='(3,4)')", "drag (1, 2) to (3, 4)"),
        ("wait()", "wait"),
        ("pyautogui.sleep(1.5)", "wait 1.5 s"),
        ("finished(content='ok')", 'finished "ok"'),
        ("finished()", "finished"),
        ("FAIL", "finished fail"),
        ("I give up", "no action found"),
        ("", "no action found"),
    ],
)
def test_an_action_is_named_in_a_few_words(text: str, label: str) -> None:
    (found,) = actions_of([text], [None])
    assert found["label"] == label


def test_a_long_label_is_cut() -> None:
    label = label_of(Action(kind="type", text="x" * 1000))
    assert label == 'type "' + "x" * 33 + "…"
    assert len(label_of(Action(kind="type", text="x" * 33))) == 40


@pytest.mark.parametrize("text", HOSTILE)
def test_a_label_stays_on_its_line_and_commands_nothing(text: str) -> None:
    label = label_of(Action(kind="type", text=f"{text}\n"))
    assert label.isprintable()
    assert len(label) <= 40
    label.encode()


def test_typed_text_is_kept_up_to_a_limit() -> None:
    (found,) = actions_of([f"type('{'x' * 1000}')"], [None])
    assert found["text"] == "x" * 400
    assert actions_of(["type('')"], [None])[0]["text"] == ""
    assert actions_of(["wait()"], [None])[0]["text"] is None


def test_pixels_count_in_the_picture_that_the_model_saw() -> None:
    text = QWEN.format("left_click", 4, 3)
    assert point_of(text, shot(8, 4)) == (0.5, 0.75)
    assert point_of(text, shot(8, 4, seen_size=(16, 12))) == (0.25, 0.25)
    assert point_of(text, REBUILT) == (4 / 28, 3 / 28)
    assert point_of(text, None) is None


def test_pixels_of_the_screen_are_not_those_of_a_rebuilt_picture() -> None:
    assert point_of("click(4, 3)", shot(8, 4)) == (0.5, 0.75)
    assert point_of("click(4, 3)", REBUILT) is None


@pytest.mark.parametrize("screenshot", [None, shot(), REBUILT])
def test_shares_and_thousandths_need_no_picture(screenshot: Screenshot | None) -> None:
    unit = "click(start_box='(0.25,0.5)')"
    thousand = "click(start_box='<point>250 500</point>')"
    assert point_of(unit, screenshot) == (0.25, 0.5)
    assert point_of(thousand, screenshot) == (0.25, 0.5)


@pytest.mark.parametrize("place", ["-1, 2", "9, 2", "2, 5", "999999999, 2"])
def test_a_point_outside_of_the_picture_is_at_no_place(place: str) -> None:
    (found,) = actions_of([f"click({place})"], [shot(8, 4)])
    assert found["point"] is None
    assert found["label"] == f"click ({place})".replace("999999999", "1e+09")
    assert point_of("click(8, 4)", shot(8, 4)) == (1, 1)


def test_on_a_broken_picture_there_is_no_place() -> None:
    assert point_of("click(1, 1)", EncodedScreenshot(data=b"no picture")) is None


def test_a_drag_has_both_ends() -> None:
    text = "drag(start_box='(2,1)', end_box='(4,2)')"
    (found,) = actions_of([text], [shot(8, 4)])
    assert (found["point"], found["end_point"]) == ((0.25, 0.25), (0.5, 0.5))


def test_every_round_has_the_action_of_its_own_text() -> None:
    texts = ["click(1, 1)", "scroll(up)", "x"]
    found = actions_of(texts, [shot(2, 2), None, None])
    assert [one["kind"] for one in found] == ["click", "scroll", "unknown"]
    assert [one["direction"] for one in found] == [None, "up", None]
    assert actions_of([], []) == []

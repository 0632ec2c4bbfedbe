"""Screenshots as the page gets them, and the actions on them."""

from __future__ import annotations

import io
import struct
import zlib
from functools import partial
from typing import Any

import pytest
import torch
from PIL import Image

from rounddiag import Batch, load
from rounddiag.core.picture_changes import last_seen_screenshots, screenshots_after
from rounddiag.errors import FrameError
from rounddiag.vision import (
    Action,
    EncodedScreenshot,
    PatchScreenshot,
    RawScreenshot,
    Screenshot,
)
from rounddiag.widgets.images import (
    action_label,
    describe_actions,
    full_screenshot,
    thumbnails,
)
from tests.widgets.samples import HOSTILE, png, shot, worded

BROKEN = EncodedScreenshot(data=b"<svg onload=\x1b", round=1, position=7)


class Failing(EncodedScreenshot):
    def image(self) -> Image.Image:
        message = "disk\nfull \u202e"
        raise OSError(message)


def showing(*shots: Screenshot) -> Batch:
    return worded([["a"], ["b"]], images=(shots,))


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_a_thumbnail_is_small_and_knows_the_original() -> None:
    (found,) = thumbnails(showing(shot(320, 200, round=0, position=-4)), 0)
    small = opened(found.pop("jpeg"))
    assert (small.size, small.format) == ((160, 100), "JPEG")
    assert found == {
        "index": 0,
        "round": 0,
        "position": -4,
        "width": 320,
        "height": 200,
    }


def test_some_thumbnails_can_be_asked_for() -> None:
    batch = load("sample_data/image_window.parquet")
    every = thumbnails(batch, 35)
    assert thumbnails(batch, 35, [2, 0, 99]) == [every[2], every[0]]


def test_a_small_picture_and_a_high_one_are_no_wider_than_they_are() -> None:
    found = thumbnails(showing(shot(8, 4), shot(320, 2000)), 0)
    assert [opened(one["jpeg"]).size for one in found] == [(8, 4), (160, 1000)]


def test_a_broken_picture_says_why_and_the_others_are_shown() -> None:
    found = thumbnails(showing(shot(), BROKEN, shot()), 0)
    assert [one["index"] for one in found] == [0, 1, 2]
    assert ["error" in one for one in found] == [False, True, False]
    assert found[1] == {
        "index": 1,
        "round": 1,
        "position": 7,
        "error": "`images`: expected a picture in PNG, JPEG, WEBP, TIFF, BMP, GIF;"
        " found 13 bytes that"
        r" start with b'<svg onl'. The numbers of the batch are not affected.",
    }


@pytest.mark.parametrize(
    "damaged",
    [
        BROKEN,
        EncodedScreenshot(data=png(50, 50)[:60]),
        EncodedScreenshot(data=b""),
        RawScreenshot(mode="RGB", width=2, height=2, data=lambda: b"short"),
        RawScreenshot(mode="L", width=0, height=9, data=lambda: b""),
        PatchScreenshot(patches=lambda: torch.zeros(2, 3), grid_thw=(1, 2, 2)),
        Failing(data=b""),
    ],
)
def test_no_picture_is_broken_enough_to_raise(damaged: Screenshot) -> None:
    (small,) = thumbnails(showing(damaged), 0)
    full = full_screenshot(showing(damaged), 0, 0)
    assert [*full] == ["error"]
    assert small["error"] == full["error"]
    assert full["error"].isprintable()


def test_a_bomb_is_not_decoded() -> None:
    bomb = bytearray(png(1, 1))
    bomb[16:24] = struct.pack(">II", 20_000, 20_000)  # says its first chunk
    bomb[29:33] = struct.pack(">I", zlib.crc32(bomb[12:29]))
    found = full_screenshot(showing(EncodedScreenshot(data=bytes(bomb))), 0, 0)
    assert "found a larger picture" in found["error"]


def test_a_stored_png_travels_as_it_is() -> None:
    screenshot = shot(30, 20)
    assert full_screenshot(showing(screenshot), 0, 0) == {
        "bytes": screenshot.data,
        "mime": "image/png",
        "width": 30,
        "height": 20,
    }


def test_a_rebuilt_picture_travels_without_loss() -> None:
    raw = RawScreenshot(mode="L", width=2, height=1, data=lambda: b"\x00\xff")
    found = full_screenshot(showing(raw), 0, 0)
    assert found["mime"] == "image/png"
    assert opened(found["bytes"]).getpixel((1, 0)) == 255


def test_a_stored_jpeg_travels_as_jpeg() -> None:
    data = png(30, 20, format="JPEG")
    found = full_screenshot(showing(EncodedScreenshot(data=data)), 0, 0)
    assert found["mime"] == "image/jpeg"
    assert opened(found["bytes"]).size == (30, 20)


def test_a_wide_picture_is_made_smaller_and_knows_its_size() -> None:
    found = full_screenshot(showing(shot(5120, 100)), 0, 0)
    assert found["mime"] == "image/jpeg"
    assert (found["width"], found["height"]) == (5120, 100)
    assert opened(found["bytes"]).size == (2560, 50)


def test_a_heavy_png_travels_as_jpeg() -> None:
    noise = torch.randint(0, 256, (1300, 1200, 3), dtype=torch.uint8).numpy()
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, format="PNG", compress_level=0)
    found = full_screenshot(showing(EncodedScreenshot(data=buffer.getvalue())), 0, 0)
    assert found["mime"] == "image/jpeg"
    assert opened(found["bytes"]).size == (1200, 1300)


@pytest.mark.parametrize("mode", ["P", "LA", "RGBA", "I;16", "CMYK", "1"])
def test_every_kind_of_pixel_has_a_thumbnail(mode: str) -> None:
    buffer = io.BytesIO()
    kind = "JPEG" if mode == "CMYK" else "PNG"
    Image.new(mode, (4, 4)).save(buffer, format=kind)
    batch = showing(EncodedScreenshot(data=buffer.getvalue()))
    (found,) = thumbnails(batch, 0)
    assert opened(found["jpeg"]).size == (4, 4)
    assert "bytes" in full_screenshot(batch, 0, 0)


def test_a_batch_without_screenshots_has_no_thumbnails() -> None:
    assert thumbnails(worded([["a"]]), 0) == []


@pytest.mark.parametrize("index", [-1, 1])
def test_a_screenshot_that_is_not_there_is_an_error(index: int) -> None:
    message = (
        f"^`index`: expected a screenshot below 1 of sample 0; found {index}. Count the"
        " sample's screenshots from 0.$"
    )
    with pytest.raises(FrameError, match=message):
        full_screenshot(showing(shot()), 0, index)


@pytest.mark.parametrize("ask", [thumbnails, partial(full_screenshot, index=0)])
def test_a_sample_that_is_not_there_is_an_error(ask: Any) -> None:
    with pytest.raises(FrameError, match=r"^`sample`: expected a sample from 0 to 0;"):
        ask(showing(shot()), 1)


def test_rounds_before_the_first_screenshot_saw_none() -> None:
    shots = [shot(round=at) for at in (1, None, 9, 1, -1)]
    assert last_seen_screenshots(shots, 3) == [None, 3, 3]
    assert last_seen_screenshots([], 2) == [None, None]
    assert last_seen_screenshots(shots, 0) == []


Point = tuple[float, float]

QWEN = (
    '<tool_call>{{"name": "computer_use", "arguments": {{"action": "{}",'
    ' "coordinate": [{}, {}]}}}}</tool_call>'
)
REBUILT = PatchScreenshot(
    patches=lambda: torch.ones(4, 3 * 2 * 14 * 14), grid_thw=(1, 2, 2)
)


def point_of(text: str, screenshot: Screenshot | None) -> Point | None:
    (found,) = describe_actions([text], [screenshot])
    return found["point"]


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
        ("DONE", "finished"),
        ("I give up", "no action"),
        ("", "no action"),
    ],
)
def test_an_action_is_named_in_a_few_words(text: str, label: str) -> None:
    (found,) = describe_actions([text], [None])
    assert found["label"] == label


@pytest.mark.parametrize(
    ("text", "written", "why"),
    [
        ("I give up<|im_end|>", "I give up", "no call and no tool call is in the text"),
        ("", "", "the text is empty"),
        ("<think>so</think>\n", "", "nothing follows the thought"),
        (
            "<think>I click(3, 4)",
            "<think>I click(3, 4)",
            "`<think>` is not closed: all after it is a thought",
        ),
        (
            "Now\nclik(3, 4)",
            "clik(3, 4)",
            "`clik` is not an action of any known grammar",
        ),
        ("click(on='x')", "click(on='x')", "`click` has no arguments of that action"),
        (
            "so click(3, 4",
            "click(3, 4",
            "`click(` is not closed: the text ends before its bracket",
        ),
        ('<tool_call>{"a": 1', '{"a": 1', "`<tool_call>` is not closed"),
        (
            '<tool_call>{"a": 1,}</tool_call>',
            '{"a": 1,}',
            "the JSON of the tool call is damaged: Illegal trailing comma",
        ),
        (
            '<tool_call>{"name": "x", "arguments": {"action": "fly"}}</tool_call>',
            '{"name": "x", "arguments": {"action": "fly"}}',
            "`fly` is not an action with these arguments",
        ),
        ("click(3, 4)", "", ""),
    ],
)
def test_a_text_without_an_action_says_what_it_has_instead(
    text: str, written: str, why: str
) -> None:
    (found,) = describe_actions([text], [None])
    assert found["written"] == written
    # What Python's JSON says of a comma differs between versions.
    assert found["why"].partition(": ")[0] == why.partition(": ")[0]


@pytest.mark.parametrize(
    ("text", "recorded", "label"),
    [
        ("Action: click", "pyautogui.click(3, 4)", "click (3, 4)"),
        ("click(5, 6)", "pyautogui.click(3, 4)", "click (5, 6)"),
        ("so", "computer.do()\nthen", "computer.do() then"),
        ("so", "", "no action"),
    ],
)
def test_an_action_that_the_file_recorded_stands_where_the_text_has_none(
    text: str, recorded: str, label: str
) -> None:
    (found,) = describe_actions([text], [None], [recorded])
    assert (found["label"], found["why"] == "") == (label, label != "no action")


def test_the_numbers_of_an_action_are_sent_as_written() -> None:
    texts = ["click(4, 3)", "click(start_box='(0.25,0.5)')", "wait()"]
    found = describe_actions(texts, [shot(8, 4)] * 3)
    assert [one["written_points"] for one in found] == [
        {"point": (4, 3), "end_point": None},
        {"point": (0.25, 0.5), "end_point": None},
        None,
    ]
    assert [one["frame"] for one in found] == ["pixels", "unit", None]
    assert [one["size"] for one in found] == [(8, 4), (8, 4), None]


@pytest.mark.parametrize(
    ("rounds", "after"),
    [
        ((0, 1, 2), [1, 2, None]),
        ((0, 1, 2, None), [1, 2, 3]),  # what the last action led to
        ((0, 0, 2), [None, 2, None]),  # the second round saw no new one
        ((1, None), [0, None, 1]),
        ((), [None, None, None]),
    ],
)
def test_an_action_leads_to_the_screenshot_of_the_next_round(
    rounds: tuple[int | None, ...], after: list[int | None]
) -> None:
    shots = [shot(round=index) for index in rounds]
    assert screenshots_after(shots, last_seen_screenshots(shots, 3)) == after


def test_a_long_label_is_cut() -> None:
    label = action_label(Action(kind="type", text="x" * 1000))
    assert label == 'type "' + "x" * 33 + "…"
    assert len(action_label(Action(kind="type", text="x" * 33))) == 40


@pytest.mark.parametrize("text", HOSTILE)
def test_a_label_stays_on_its_line_and_commands_nothing(text: str) -> None:
    label = action_label(Action(kind="type", text=f"{text}\n"))
    assert label.isprintable()
    assert len(label) <= 40
    label.encode()


def test_typed_text_is_kept_up_to_a_limit() -> None:
    (found,) = describe_actions([f"type('{'x' * 1000}')"], [None])
    assert found["text"] == "x" * 400
    assert describe_actions(["type('')"], [None])[0]["text"] == ""
    assert describe_actions(["wait()"], [None])[0]["text"] is None


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
    (found,) = describe_actions([f"click({place})"], [shot(8, 4)])
    assert found["point"] is None
    assert found["label"] == f"click ({place})".replace("999999999", "1e+09")
    assert point_of("click(8, 4)", shot(8, 4)) == (1, 1)


def test_on_a_broken_picture_there_is_no_place() -> None:
    assert point_of("click(1, 1)", EncodedScreenshot(data=b"no picture")) is None


def test_a_drag_has_both_ends() -> None:
    text = "drag(start_box='(2,1)', end_box='(4,2)')"
    (found,) = describe_actions([text], [shot(8, 4)])
    assert (found["point"], found["end_point"]) == ((0.25, 0.25), (0.5, 0.5))


def test_every_round_has_the_action_of_its_own_text() -> None:
    texts = ["click(1, 1)", "scroll(up)", "x"]
    found = describe_actions(texts, [shot(2, 2), None, None])
    assert [one["kind"] for one in found] == ["click", "scroll", "unknown"]
    assert [one["direction"] for one in found] == [None, "up", None]
    assert describe_actions([], []) == []

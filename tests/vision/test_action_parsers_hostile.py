"""Whatever a page made the model write, reading it ends, and nothing runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.vision import Action, parse_action, parse_actions

PARTS = [
    *("click", "pyautogui.", "type", "scroll", "drag", "hotkey", "start_box", "wait"),
    *("(", ")", "[", "]", "{", "}", ",", "=", ":", "'", '"', "\\", " ", "\n", "```"),
    *("1", "0.5", "-", "1e999", "<tool_call>", "</tool_call>", "<point>", "DONE"),
    *('{"arguments": {"action": "', '"coordinate": [', "NaN", "true", "\ud800", "é"),
]
MEGABYTE = 1_000_000
# Each made a naive parser try again at every character, or go too deep.
HOSTILE = [
    *("a", " ", "(", "{", "{}", "\n", "_", "9", "\t", "\x00"),
    *("click(", "click('", "click('a'a", "click([1,", "click(a=", "click(a ", "f(f("),
    *("click(1,1,1,1,1,1,1,1,1,1,1,1,", "<tool_call>", "<tool_call>{", "pyautogui."),
    *("click(" + " " * 100, "f('" + "x" * 19_990 + "',", "f('" + "x'" * 9_990),
]


@given(st.lists(st.sampled_from(PARTS), max_size=30).map("".join))
def test_every_text_has_an_action(text: str) -> None:
    action = parse_action(text)
    assert isinstance(action, Action)
    assert action.kind != "unknown" or action.source_text == text
    assert action.source_text in text


@pytest.mark.hostile
@pytest.mark.parametrize("part", HOSTILE)
def test_a_megabyte_of_hostile_text_is_read(part: str) -> None:
    text = part * (MEGABYTE // len(part))
    assert parse_actions(text) == []
    assert parse_actions(text + "\n click(3, 4)")[-1:] in (
        [],  # the click stands in a string that the hostile text began
        [
            Action(
                kind="click",
                point=(3, 4),
                coordinates="original",
                source_text="click(3, 4)",
            )
        ],
    )


def test_json_of_great_depth_and_length_is_no_action() -> None:
    deep = '{"a":' * 20_000 + "1" + "}" * 20_000
    wide = '{"arguments": {"action": "type", "text": "' + "x" * 100_000 + '"}}'
    for text in (deep, wide):
        assert parse_action(f"<tool_call>{text}</tool_call>").kind == "unknown"

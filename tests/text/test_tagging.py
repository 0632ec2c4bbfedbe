"""What tokens are for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.text.tagging import ROLES, roles, tag_actions


def told(text: str) -> list[tuple[str, str]]:
    """The stretches of a text that are no syntax, and their roles."""
    parts = [(text[start:stop], role) for start, stop, role in tag_actions(text)]
    return [(part, role) for part, role in parts if part and role != "syntax"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<think>I click (here).</think> click(141, 203)",
            [
                ("<think>I click (here).</think> ", "thought"),
                ("click", "action"),
                ("141", "coordinates"),
                ("203", "coordinates"),
            ],
        ),
        (
            "Thought: call foo(1)\nAction: drag(start_box='(1,2)', end_box='(3,4)')",
            [
                ("Thought: call foo(1)\nAction: ", "thought"),
                ("drag", "action"),
                ("'(1,2)'", "coordinates"),
                ("'(3,4)'", "coordinates"),
            ],
        ),
        (
            "Action: click(start_box='<|box_start|>(12,34)<|box_end|>')",
            [
                ("Action: ", "thought"),
                ("click", "action"),
                ("'<|box_start|>(12,34)<|box_end|>'", "coordinates"),
            ],
        ),
        (
            "pyautogui.write('a b'); pyautogui.click(x=1, y=2.5)",
            [
                ("pyautogui.write", "action"),
                ("'a b'", "typed text"),
                ("pyautogui.click", "action"),
                ("1", "coordinates"),
                ("2.5", "coordinates"),
            ],
        ),
        (
            'so <tool_call>{"name": "computer_use", "arguments": {"action": "type",'
            ' "text": "Oslo", "coordinate": [1, 2]}}</tool_call>',
            [
                ("so ", "thought"),
                ('"computer_use"', "action"),
                ('"type"', "action"),
                ('"Oslo"', "typed text"),
                ("1", "coordinates"),
                ("2", "coordinates"),
            ],
        ),
        ("no action at all", [("no action at all", "thought")]),
        ("", []),
    ],
)
def test_each_grammar_is_divided(text: str, expected: list[tuple[str, str]]) -> None:
    assert told(text) == expected


def test_a_token_has_the_role_of_its_first_visible_character() -> None:
    found = roles(["go", " click", "(1", "0", ",", " 2)", "<end>"], special={"<end>"})

    assert found == [
        *("thought", "action", "syntax", "coordinates"),
        *("syntax", "coordinates", "special"),
    ]


def test_each_round_is_tagged_by_itself() -> None:
    assert roles(["click(1)", "so", " on"], starts=[1]) == ["action"] + ["thought"] * 2


def test_another_tagger_can_be_given() -> None:
    def tagger(text: str) -> list[tuple[int, int, str]]:
        return [(1, 3, "loud"), (2, 3, "louder")] if text else []

    assert roles(["a", "b", "c", "d"], tagger=tagger) == [
        *("other", "loud", "louder", "other")
    ]


def test_tokens_without_text_have_a_role_too() -> None:
    assert roles(["", "a", ""]) == ["thought", "thought", "other"]
    assert roles([]) == []


@given(st.lists(st.text(max_size=6)), st.integers(0, 10))
def test_every_token_has_one_role(pieces: list[str], start: int) -> None:
    found = roles(pieces, starts=[min(start, len(pieces))])

    assert len(found) == len(pieces)
    assert set(found) <= set(ROLES)


@pytest.mark.parametrize(
    "text", ["a(" * 50_000, "'" * 50_000 + "b('" + "\\" * 50_000, "{" * 100_000]
)
def test_a_hostile_text_ends_soon(text: str) -> None:
    assert tag_actions(text)
    assert len(roles([text])) == 1

"""What tokens are for."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.text.role_tagging import ROLES, roles, tag_actions


def tagged_parts(text: str) -> list[tuple[str, str]]:
    """The stretches of a text that are no syntax, and their roles."""
    of_character = zip(text, roles(list(text)), strict=True)
    parts = [
        ("".join(sign for sign, _ in group), role)
        for role, group in groupby(of_character, lambda pair: pair[1])
    ]
    return [(p.strip(), role) for p, role in parts if role != "syntax" and p.strip()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "<think>I click (here).</think> click(141, 203)",
            [
                ("<think>I click (here).</think>", "thought"),
                ("click", "action"),
                ("141", "coordinates"),
                ("203", "coordinates"),
            ],
        ),
        (
            "Thought: call foo(1)\nAction: drag(start_box='(1,2)', end_box='(3,4)')",
            [
                ("Thought: call foo(1)", "thought"),
                ("drag", "action"),
                *((number, "coordinates") for number in "1234"),
            ],
        ),
        (
            "Action: click(start_box='<|box_start|>(12,34)<|box_end|>')",
            [("click", "action"), ("12", "coordinates"), ("34", "coordinates")],
        ),
        (
            "Action: scroll(direction='down', point='<point>10 20</point>')",
            [
                ("scroll", "action"),
                ("down", "other arguments"),
                ("10", "coordinates"),
                ("20", "coordinates"),
            ],
        ),
        (
            "pyautogui.write('don't'); pyautogui.click(x=1, y=2.5);"
            " pyautogui.hotkey('ctrl', 'c'); time.sleep(3)",
            [
                ("pyautogui.write", "action"),
                ("don't", "typed text"),
                ("pyautogui.click", "action"),
                ("1", "coordinates"),
                ("2.5", "coordinates"),
                ("pyautogui.hotkey", "action"),
                ("ctrl", "other arguments"),
                ("c", "other arguments"),
                ("time.sleep", "action"),
                ("3", "other arguments"),
            ],
        ),
        (
            '<think>so</think><tool_call>{"name": "computer_use", "arguments":'
            ' {"action": "type", "text": "Oslo"}}</tool_call>\n<tool_call>{"name":'
            ' "computer_use", "arguments": {"action": "left_click", "coordinate":'
            " [1, 2]}}</tool_call>",
            [
                ("<think>so</think>", "thought"),
                ("computer_use", "action"),
                ("type", "action"),
                ("Oslo", "typed text"),
                ("computer_use", "action"),
                ("left_click", "action"),
                ("1", "coordinates"),
                ("2", "coordinates"),
            ],
        ),
        (
            'Action: {"action_type": "key", "keys": ["ctrl", "c"], "x": 3} bye',
            [
                ("key", "action"),
                ("ctrl", "other arguments"),
                ("c", "other arguments"),
                ("3", "coordinates"),
                ("bye", "other"),
            ],
        ),
        (
            "open(app='mail', 'Oslo')",
            [("open", "action"), ("mail", "other arguments"), ("Oslo", "typed text")],
        ),
        (
            "<think>a</think> not click(1)</think>click(2)",
            [
                ("<think>a</think> not click(1)</think>", "thought"),
                ("click", "action"),
                ("2", "coordinates"),
            ],
        ),
        (
            "type('2024'); input_text(text=\"12, 34\", x=5)",
            [
                ("type", "action"),
                ("2024", "typed text"),
                ("input_text", "action"),
                ("12, 34", "typed text"),
                ("5", "coordinates"),
            ],
        ),
        (
            '{"action": "type", "text": 2024}',
            [("type", "action"), ("2024", "typed text")],
        ),
        (
            '{"action": "scroll", "pixels": -300, "keys": ["shift"], "status": "ok"}',
            [
                ("scroll", "action"),
                ("-300", "coordinates"),
                ("shift", "other arguments"),
                ("ok", "other arguments"),
            ],
        ),
        ("scroll(down)", [("scroll", "action"), ("down", "other arguments")]),
        ("<think>not click(1)", [("<think>not click(1)", "thought")]),
        ("no action at all", [("no action at all", "thought")]),
        ("click(12", [("click", "action"), ("12", "coordinates")]),
        ("", []),
    ],
)
def test_each_grammar_is_divided(text: str, expected: list[tuple[str, str]]) -> None:
    assert tagged_parts(text) == expected


def test_a_token_has_the_role_of_its_first_visible_character() -> None:
    found = roles(["go", " click", "(1", "0", ",", " 2)", "<end>"], special={"<end>"})

    assert found == [
        *("thought", "action", "syntax", "coordinates"),
        *("syntax", "coordinates", "special"),
    ]


def test_each_round_is_tagged_by_itself() -> None:
    assert roles(["click(1)", "so", " on"], starts=[1]) == ["action"] + ["thought"] * 2


def test_another_tagger_can_be_passed() -> None:
    def tagger(text: str) -> list[tuple[int, int, str]]:
        return [(1, 3, "loud"), (2, 3, "louder")] if text else []

    assert roles(["a", "b", "c", "d"], tagger=tagger) == [
        *("other", "loud", "louder", "other")
    ]


def test_the_rest_of_a_character_has_the_role_of_the_character() -> None:
    assert roles(["type('", "é", "", "')", ""]) == [
        *("action", "typed text", "typed text", "syntax", "syntax")
    ]


def test_tokens_without_text_have_a_role_too() -> None:
    assert roles(["", "a"]) == ["thought", "thought"]
    assert roles([""]) == ["other"]
    assert roles([]) == []


@given(st.lists(st.text(max_size=6)), st.integers(0, 10))
def test_every_token_has_one_role(pieces: list[str], start: int) -> None:
    found = roles(pieces, starts=[min(start, len(pieces))])

    assert len(found) == len(pieces)
    assert set(found) <= set(ROLES)


@pytest.mark.parametrize(
    "text",
    [
        "a(" * 50_000,
        "'" * 50_000 + "b('" + "\\" * 50_000,
        "{" * 100_000,
        '{"a' * 50_000,
        "f(" + "'a" * 50_000,
        "f()" + "<" * 100_000,
        "{ " * 50_000,
        "<tool_call>" * 10_000,
    ],
)
def test_a_hostile_text_ends_soon(text: str) -> None:
    assert tag_actions(text)
    assert len(roles([text])) == 1

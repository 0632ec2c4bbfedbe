"""What the tokens of real batches are for, token by token."""

from __future__ import annotations

from functools import cache

import pandas as pd
import pytest
from tokenizers import Tokenizer

import rounddiag as rd
from rounddiag.stats import means_by
from rounddiag.text import pieces, roles

TOKENIZER = "sample_data/tokenizer.json"
THOUGHT, ACTION, SYNTAX = "thought", "action", "syntax"
PLACE, TYPED, SPECIAL = "coordinates", "typed text", "special"


@cache
def tokens() -> pd.DataFrame:
    batch = rd.load("sample_data/image_window.parquet")
    return rd.token_frame(batch, ["text", "role"])


def joined_by_role(of: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join neighbours of one role, as texts with bars between the tokens."""
    found: list[tuple[str, str]] = []
    for text, role in of:
        if found and found[-1][1] == role:
            found[-1] = f"{found[-1][0]}|{text}", role
        else:
            found.append((text, role))
    return found


@pytest.mark.parametrize(
    ("sample", "index", "expected"),
    [
        (
            0,
            0,
            [
                ("<think>|I| do| not| see| Location|,| I| scroll|.|</think>", THOUGHT),
                (" scroll", ACTION),
                ("(", SYNTAX),
                ("down", "other arguments"),
                (")", SYNTAX),
                ("<|im_end|>", SPECIAL),
            ],
        ),
        (
            3,
            0,
            [
                ("<think>|I| switch| Location| on|.|</think>", THOUGHT),
                (" click", ACTION),
                ("(", SYNTAX),
                ("2|8|2", PLACE),
                (",| ", SYNTAX),
                ("1|7|0", PLACE),
                (")", SYNTAX),
                ("<|im_end|>", SPECIAL),
            ],
        ),
        (
            4,
            3,
            [
                ("<think>|Here| goes| the| code|.|</think>", THOUGHT),
                (" type", ACTION),
                ('("', SYNTAX),
                ("OCEAN", TYPED),
                ('")', SYNTAX),
                ("<|im_end|>", SPECIAL),
            ],
        ),
    ],
)
def test_rounds_of_the_sample_batch(
    sample: int, index: int, expected: list[tuple[str, str]]
) -> None:
    frame = tokens()
    rows = frame[(frame["sample"] == sample) & (frame["round"] == index)]
    assert (
        joined_by_role(list(zip(rows["text"], rows["role"], strict=True))) == expected
    )


def test_the_first_and_the_last_token_of_every_round_are_rows_of_their_own() -> None:
    batch = rd.load("sample_data/image_window.parquet")
    found = means_by(batch, "role").set_index("label")
    frame = rd.token_frame(batch)
    size = frame["diff"].abs().astype(float)
    ends = frame.groupby(["sample", "round"])["token"]
    for row, end in (("first", ends.transform("min")), ("last", ends.transform("max"))):
        at = frame["token"] == end
        name = f"{row} of a round"
        assert found["num_tokens"][name] == at.sum() == batch.num_rounds
        assert found["mean"][name] == pytest.approx(size[at].mean())


def tagged(text: str) -> list[tuple[str, str]]:
    """Tokens that the tokenizer of the sample data makes of a text, with roles."""
    ids = Tokenizer.from_file(TOKENIZER).encode(text).ids
    parts = pieces(ids, TOKENIZER)
    return joined_by_role(
        list(zip(parts, roles(parts, special={"<|im_end|>"}), strict=True))
    )


def test_the_tokens_of_a_call_have_roles() -> None:
    assert tagged("<think>I click.</think> click(397, 163)<|im_end|>") == [
        ("<think>|I| click|.|</think>", THOUGHT),
        (" click", ACTION),
        ("(", SYNTAX),
        ("3|9|7", PLACE),
        (",| ", SYNTAX),
        ("1|6|3", PLACE),
        (")", SYNTAX),
        ("<|im_end|>", SPECIAL),
    ]


def test_the_tokens_of_a_pyautogui_call_have_roles() -> None:
    assert tagged("pyautogui.click(x=397, y=163)<|im_end|>") == [
        ("p|y|a|u|t|o|g|u|i|.|c|lic|k", ACTION),
        ("(|x|=", SYNTAX),
        ("3|9|7", PLACE),
        (",| |y|=", SYNTAX),
        ("1|6|3", PLACE),
        (")", SYNTAX),
        ("<|im_end|>", SPECIAL),
    ]


def test_the_tokens_of_a_tool_call_in_json_have_roles() -> None:
    text = (
        '<tool_call>\n{"name": "computer_use", "arguments": {"action": "type",'
        ' "text": "Oslo", "coordinate": [397, 163]}}\n</tool_call><|im_end|>'
    )
    assert tagged(text) == [
        ('<|t|oo|l|_|c|a|ll|>|\n|{|"|n|ame|"|:| |"', SYNTAX),
        ("c|o|m|p|u|ter|_|u|se", ACTION),
        ('"|,| |"|ar|g|u|m|en|t|s|"|:| |{|"|ac|t|ion|"|:| |"', SYNTAX),
        ("t|ype", ACTION),
        ('"|,| |"|t|e|xt|"|:| |"', SYNTAX),
        ("Oslo", TYPED),
        ('"|,| |"|c|o|or|d|in|at|e|"|:| |[', SYNTAX),
        ("3|9|7", PLACE),
        (",| ", SYNTAX),
        ("1|6|3", PLACE),
        ("]|}|}|\n|<|/|t|oo|l|_|c|a|ll|>", SYNTAX),
        ("<|im_end|>", SPECIAL),
    ]

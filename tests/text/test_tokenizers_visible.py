"""What cannot be seen has a sign, and nothing shown can turn or hide text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.text import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("a b\n\t", "a·b↵⇥"),
        ("\r\x00\x1b[31m", r"\r\x00\x1b[31m"),
        ("\u202eabc\u2069", r"\u202eabc\u2069"),  # turned to the left
        ("cl\u200bick\ufeff", r"cl\u200bick\ufeff"),  # of zero width
        ("cl\u200dick", r"cl\u200dick"),
        ("\u200d", r"\u200d"),
        ("\xa0\u3000", r"\xa0\u3000"),
        ("\ud800", r"\ud800"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("❤\ufe0f\u200d🔥", "❤\ufe0f\u200d🔥"),
        ("שלום", "שלום"),
    ],
)
def test_what_cannot_be_seen_has_a_sign(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text())
def test_no_control_and_no_format_character_is_left(text: str) -> None:
    kinds = {unicodedata.category(sign) for sign in visible(text) if sign != "\u200d"}
    assert not kinds & {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"}

"""JSON of others: values of a shape, or a sentence about what is wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest

from rounddiag.text import json_text
from rounddiag.text.json_text import MAX_DEPTH, JsonError, parse_json


@pytest.mark.parametrize(
    ("text", "shape", "value"),
    [
        (b"[1, 2]", [int], [1, 2]),
        (b"\xef\xbb\xbf[1]", list, [1]),
        (b"[1, 2.5, null]", [float | None], [1, 2.5, None]),
        (b'{"a": [[7]], "b": 1}', {"a": [[int]], "c?": str}, {"a": [[7]], "b": 1}),
        (b'[{"a": null}]', [{"a": object}], [{"a": None}]),
        (str(2**63 - 1), int, 2**63 - 1),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, list, None),
        # Half a pair of surrogates; a pair; an escaped backslash before "ud800".
        (rb'"\ud800!"', str, "\ufffd!"),
        (rb'"\uDE00\uD83D"', str, "\ufffd\ufffd"),
        (rb'"\ud83d\ude00 \ud83d"', str, "\U0001f600 \ufffd"),
        (rb'"\\ud800"', str, r"\ud800"),
    ],
)
def test_values(text: bytes | str, shape: Any, value: object) -> None:
    found = parse_json(text, shape)
    assert value is None or found == value


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        (b"[1, true]", [int], "`[1]` is true or false, not an integer"),
        (b"[1, true]", [float | None], "`[1]` is true or false, not a number or null"),
        (b"[1.0]", [int], "`[0]` is a number, not an integer"),
        (b'{"a": {}}', {"a": {"b": int}}, "`a.b` is missing"),
        (b'{"a": [1, null]}', {"a": [{"b": int}]}, "`a[0]` is an integer, not an obj"),
        (b'{"a": null}', {"a?": str}, "`a` is null, not a text"),
        (b'"abc"', [int], "it is a text, not a list"),
        (b"[9223372036854775808]", [int], "`[0]` is an integer beyond 64 bits, not"),
        (b"9" * 5000, int, "no JSON: Exceeds the limit"),
        (b"\xff", object, "no UTF-8: byte 0 is 0xff"),
        (b"", object, "no JSON: Expecting value"),
        (b"[" * 100_000, object, "values nested in more than 100 levels"),
        (b"[" * 101 + b"]" * 101, object, "values nested in more than 100 levels"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, object, "nested in more than 100 levels"),
    ],
)
def test_what_is_wrong(text: bytes, shape: Any, message: str) -> None:
    with pytest.raises(JsonError, match=re.escape(message)):
        parse_json(text, shape)


@pytest.mark.parametrize(("text", "wanted"), [('{"a":', True), ('{"a" 1}', False)])
def test_a_text_that_is_cut_off(text: str, wanted: bool) -> None:
    with pytest.raises(JsonError) as error:
        parse_json(text)
    assert error.value.is_cut_off == wanted


@pytest.mark.parametrize("unit", ["[],", "{},", "[0],", '{"a":1},', "[[]],"])
def test_a_text_that_would_take_many_times_its_size_is_an_error(unit: str) -> None:
    text = "[" + unit * 3_000_000 + "0]"
    with pytest.raises(JsonError, match="more than 12 times as much memory"):
        parse_json(text.encode())


def test_lists_may_take_twelve_times_the_size_of_a_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_text, "_FREE", 0)

    assert parse_json('["abcdef"]') == ["abcdef"]  # 10 characters: 120 bytes
    with pytest.raises(JsonError, match="1 lists and 0 objects in 9 characters"):
        parse_json('["abcde"]')

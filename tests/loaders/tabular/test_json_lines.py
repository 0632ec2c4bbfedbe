"""JSON lines: numbers as compact arrays, and damaged or hostile text as LoadErrors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.errors import LoadError
from rounddiag.loaders import load
from rounddiag.loaders.json_lines import JsonLines, Record
from rounddiag.loaders.source import Source
from tests.loaders.nemo_rl_writer import small_step, write
from tests.loaders.refusal import refused

PARTS = ("generation_logprobs", "prev_logprobs", "input_lengths")


def records(data: bytes) -> list[Record]:
    return list(JsonLines(Source(path=Path("f.jsonl"), size=len(data), data=data)))


def values(text: str) -> Any:
    """Return the field of a record of one."""
    (record,) = records(f'{{"a": {text}}}\n'.encode())
    return record["a"]


def damage(data: bytes) -> str:
    with pytest.raises(LoadError) as caught:
        records(data)
    return str(caught.value)


def damaged(found: str) -> str:
    return (
        f"f.jsonl: expected a whole file of its kind; found {found}. It is cut off,"
        " damaged or forged: copy or save it again."
    )


@pytest.mark.parametrize(
    ("text", "expected", "dtype"),
    [
        ("[0, 1, -128]", [0, 1, -128], "int8"),
        ("[0, 151655]", [0, 151655], "int32"),
        ("[0, 4294967296]", [0, 1 << 32], "int64"),
        ("[0, -0.5]", [0.0, -0.5], "float32"),
        ("[-0.1]", [-0.1], "float64"),
        ("[1e308, 0.5]", [1e308, 0.5], "float64"),
        ("[true, false]", [True, False], "bool"),
        ("[]", [], "bool"),
    ],
)
def test_numbers_become_the_smallest_array_that_holds_them_exactly(
    text: str, expected: list[float], dtype: str
) -> None:
    found = values(text)

    assert found.tolist() == expected
    assert found.dtype == dtype


@given(st.lists(st.floats(width=32), min_size=1))
def test_single_precision_survives_being_written_as_text(numbers: list[float]) -> None:
    found = values(json.dumps(numbers))

    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.array(numbers, dtype=np.float32))


def test_null_nan_and_infinity_are_numbers() -> None:
    np.testing.assert_array_equal(
        values("[null, NaN, Infinity, -Infinity, -1]"),
        np.array([np.nan, np.nan, np.inf, -np.inf, -1]),
    )


@pytest.mark.parametrize(
    "text", ['["a", 1]', '[{"a": 1}]', "[[1], {}]", "[18446744073709551616]"]
)
def test_a_list_of_anything_else_stays_a_list(text: str) -> None:
    assert values(text) == json.loads(text)


def test_rows_inside_a_list_become_arrays() -> None:
    first, second = values("[[1, 2], [0.5]]")

    assert first.tolist() == [1, 2]
    assert second.tolist() == [0.5]


def test_a_record_knows_its_line() -> None:
    found = records(b'{"a": 1}\n\n  \r\n{"a": 2}')

    assert [(record["a"], record.line) for record in found] == [(1, 1), (2, 4)]


def test_a_byte_order_mark_may_stand_before_the_text(tmp_path: Path) -> None:
    path = write(tmp_path / "train_data_step1.jsonl", small_step())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert load(path).num_samples == 3


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"a": [1, 2', "line 2: no JSON: Expecting ',' delimiter: line 1 column 12"),
        (b'{"a": "b', "line 2: no JSON: Unterminated string starting at: line 1"),
        (b'{"a": "\xff"}', "line 2: no UTF-8: byte 7 is 0xff"),
        (b'{"b": 2, "a": 1, "a": 3}', "line 2: no JSON: `a` twice"),
        (b'{"b": {"a": 1, "a": 3}}', "line 2: no JSON: `a` twice"),
        (b'{"a": 1} {"a": 2}', "line 2: no JSON: Extra data: line 1 column 10"),
        (b'{"a": 0x10}', "line 2: no JSON: Expecting ',' delimiter"),
        (b"[1, 2]", "a list in line 2, where a record must be"),
        (b"null", "a single value in line 2, where a record must be"),
        (b"\x00\x00\x00", "line 2: no JSON: Expecting value: line 1 column 1"),
    ],
)
def test_a_damaged_line_is_an_error_that_names_it(line: bytes, found: str) -> None:
    assert damage(b'{"a": 1}\n' + line).startswith(damaged(found).partition(". It")[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'{"a": 1,\n "b": [1, 2]}\n', [{"a": 1, "b": [1, 2]}]),
        (b'\xef\xbb\xbf{"a":\r\n1}\n', [{"a": 1}]),
        (b'[{"a": 1}, {"a": 2}]', [{"a": 1}, {"a": 2}]),
        (b'[\n  {"a": 1},\n  {"a": 2}\n]\n', [{"a": 1}, {"a": 2}]),
        (b"{\n}", [{}]),
        (b"[]", []),
        (b'[{"a": 1}, 2]', []),
    ],
)
def test_a_document_is_its_records(text: bytes, expected: list[Any]) -> None:
    found = [
        {name: getattr(v, "tolist", lambda v=v: v)() for name, v in record.items()}
        for record in records(text)
    ]

    assert found == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [(b'{"a": 1}\n{"a": {\n}}\n', 2), (b'{"a": {\n}}\n{"a": {\n}}\n', 1)],
)
def test_a_record_over_several_lines_is_an_error_that_says_so(
    text: bytes, line: int
) -> None:
    assert damage(text) == (
        "f.jsonl: expected one whole JSON record on every line; found a record that"
        f" does not end on line {line}. Write each record without line breaks:"
        " `json.dumps` without `indent`."
    )


@pytest.mark.parametrize("number", [b"9" * 100_000, b"-" + b"9" * 100_000])
def test_an_integer_of_many_digits_is_an_error(tmp_path: Path, number: bytes) -> None:
    message = refused(tmp_path / "a.jsonl", b'{"a": ' + number + b"}")

    assert "found line 1: no JSON: Exceeds the limit" in message


def test_a_fraction_of_many_digits_is_a_number() -> None:
    assert values("[0." + "1" * 100_000 + "]").tolist() == [1 / 9]


@pytest.mark.parametrize("start", [b'{"a": ', b"["])
def test_deep_nesting_is_an_error(tmp_path: Path, start: bytes) -> None:
    message = refused(tmp_path / "a.jsonl", b'{"a": ' + start * 100_000)

    assert "found line 1: values nested in more than 100 levels" in message


def test_text_without_a_record_is_an_unknown_file(tmp_path: Path) -> None:
    assert "expected a saved batch; found one JSON object of a" in refused(
        tmp_path / "a.jsonl", b'{"a": "<script>"}'
    )

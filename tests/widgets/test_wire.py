"""Results as they travel to a page."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from rounddiag.widgets.view import packed


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("float64", "float32"),
        ("float32", "float32"),
        ("int64", "int32"),
        ("int32", "int32"),
        ("int8", "int8"),
        ("uint8", "uint8"),
        ("bool", "uint8"),
    ],
)
def test_arrays_are_buffers_of_what_a_page_can_read(dtype: str, name: str) -> None:
    plain, buffers = packed({"x": [np.array([1, 0], dtype)]})
    assert plain == {"x": [{"$": 0, "dtype": name}]}
    assert buffers == [np.array([1, 0], name).tobytes()]


def test_bytes_are_a_buffer_of_their_own() -> None:
    plain, buffers = packed({"a": b"one", "b": [b"two"]})
    assert plain == {
        "a": {"$": 0, "dtype": "bytes"},
        "b": [{"$": 1, "dtype": "bytes"}],
    }
    assert buffers == [b"one", b"two"]


def test_what_json_does_not_know_is_none() -> None:
    values = (math.nan, math.inf, -math.inf, np.float32("nan"), None)
    assert packed(values) == ([None] * 5, [])


def test_scalars_of_numpy_are_plain() -> None:
    plain, _ = packed({1: np.int64(3), "b": np.True_, "c": np.float32(0.5)})
    assert json.dumps(plain) == '{"1": 3, "b": true, "c": 0.5}'


def test_text_that_is_no_unicode_is_sent() -> None:
    plain, _ = packed(["\ud83d", "<b>"])
    assert plain == ["\\ud83d", "<b>"]
    assert json.dumps(plain, ensure_ascii=False).encode()

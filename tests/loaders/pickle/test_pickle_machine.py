"""The pickle interpreter: as the standard one on data, inert on everything else."""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rounddiag.errors import LoadError
from rounddiag.loaders.pickle.opcodes import SHORT
from rounddiag.loaders.pickle.placeholders import Name, Node, TextBytes
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.loaders.source import Source, Span
from rounddiag.loaders.stored import StoredArray, find_array

KEYS = st.one_of(st.none(), st.booleans(), st.text(), st.integers(-(1 << 40), 1 << 40))
VALUES = st.recursive(
    st.one_of(
        KEYS,
        st.integers(),
        st.floats(allow_nan=False),
        st.binary(max_size=SHORT - 1),
        st.text(min_size=300, max_size=400),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.lists(inner).map(tuple),
        st.dictionaries(KEYS, inner),
    ),
    max_leaves=20,
)


def whole(stream: bytes) -> Span:
    return Source(path=Path("a.pkl"), size=len(stream), data=stream).whole()


def read(stream: bytes) -> object:
    span = whole(stream)
    with span.open() as opened:
        return PickleMachine(span, opened).run()


@settings(max_examples=min(60, settings().max_examples), deadline=None)
@given(value=VALUES, protocol=st.integers(0, 5))
def test_plain_data_are_what_the_standard_library_reads(
    value: object, protocol: int
) -> None:
    assert read(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", range(6))
def test_sets_are_lists_and_ordered_dictionaries_dictionaries(protocol: int) -> None:
    value = [{3}, frozenset({4}), OrderedDict(a=1)]

    assert read(pickle.dumps(value, protocol)) == [[3], [4], {"a": 1}]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_long_bytes_stay_where_they_are(kind: type[bytes]) -> None:
    data = kind(range(256)) * 3
    stream = pickle.dumps({"x": data}, protocol=5)
    found = read(stream)

    assert isinstance(found, dict)
    span = found["x"]
    assert isinstance(span, Span)
    assert stream[span.start : span.stop] == data
    assert span.read() == data


@pytest.mark.parametrize("protocol", range(6))
def test_an_object_is_a_node_with_its_state(protocol: int) -> None:
    found = read(pickle.dumps(Thing(), protocol))

    assert isinstance(found, Node)
    assert found.name.endswith("Thing")
    assert found.state == {"colour": "red"}


@pytest.mark.parametrize("protocol", [1, 2])
def test_long_bytes_that_are_stored_as_text_stay_where_they_are(protocol: int) -> None:
    data = bytes(range(256)) * 300

    found = read(pickle.dumps([data, "\xe9" * 70_000], protocol))

    assert isinstance(found, list)
    assert isinstance(found[0], TextBytes)
    assert found[0].read() == data
    assert found[1] == "\xe9" * 70_000


def test_long_text_that_is_no_bytes_is_an_error_when_it_is_read() -> None:
    text = "\u20ac" * 30_000
    call = b"c_codecs\nencode\n" + pickle.dumps(text, 2)[2:-1] + b"X\6\0\0\0latin1"
    found = read(b"\x80\2" + call + b"\x86R.")

    assert isinstance(found, TextBytes)
    with pytest.raises(LoadError, match="found text where bytes should be"):
        found.read()


class Thing:
    def __init__(self) -> None:
        self.colour = "red"


def test_a_class_is_a_name() -> None:
    assert read(pickle.dumps(OrderedDict, 4)) == Name("collections.OrderedDict")


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(3, dtype=np.int16),
        np.arange(400, dtype=">f8"),
        np.asfortranarray(np.arange(600.0).reshape(2, 300)),
        np.array([True, False]),
        np.array(["a", "bc"]),
    ],
    ids=["short", "big-endian", "fortran", "flags", "text"],
)
def test_arrays_are_read_as_numpy_reads_them(
    array: np.ndarray[Any, Any], protocol: int
) -> None:
    found = find_array(read(pickle.dumps(array, protocol)))

    assert isinstance(found, StoredArray)
    assert np.array_equal(found.array(), array)
    assert found.array().dtype == array.dtype


@pytest.mark.parametrize("protocol", range(1, 6))
def test_a_long_array_is_read_as_numpy_reads_it(protocol: int) -> None:
    array = np.arange(40_000)
    found = find_array(read(pickle.dumps(array, protocol)))

    assert isinstance(found, StoredArray)
    assert np.array_equal(found.array(), array)


def test_an_array_of_objects_is_its_items() -> None:
    array = np.array(["a", None, 3], dtype=object)
    assert find_array(read(pickle.dumps(array))) == ["a", None, 3]

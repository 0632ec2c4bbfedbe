"""Long lists of numbers: read at once, and the same as when read one by one."""

from __future__ import annotations

import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from rounddiag.errors import LoadError
from rounddiag.loaders.pickle.opcodes import WINDOW, take_numbers
from tests.loaders.pickle.test_pickle_machine import read, whole

# What the numbers of a list are drawn from: all four opcodes of token ids and of
# log-probabilities, and what stands between them in a list that is not only of those.
POOLS: tuple[list[object], ...] = (
    [0, 1],
    [7, 255, 256, 65_535, 65_536, 152_064],
    [-0.0, -1.5, float("inf"), 1e-300],
    [True, 3, None, 0.5],
    [-1, 5],
    [(1 << 19) - 1, 1 << 19, -1, 1 << 31, 1 << 70],
    ["a", 2, [1.0]],
)


@st.composite
def lists_of_numbers(draw: DrawFn) -> list[object]:
    """Lists with long runs of numbers from one pool after the other."""
    values: list[object] = []
    parts = st.tuples(st.sampled_from(POOLS), st.integers(0, 1500), st.integers(0, 99))
    for pool, count, seed in draw(st.lists(parts, max_size=4)):
        values += random.Random(seed).choices(pool, k=count)  # noqa: S311 no secret
    return values


@settings(max_examples=min(60, settings().max_examples), deadline=None)
@given(value=st.lists(lists_of_numbers(), max_size=3), protocol=st.integers(0, 5))
def test_lists_of_numbers_are_what_the_standard_library_reads(
    value: list[list[object]], protocol: int
) -> None:
    found = read(pickle.dumps(value, protocol))

    assert found == value
    assert repr(found) == repr(value)  # 1 and True, 0.0 and -0.0 are equal


@pytest.mark.parametrize("numbers", [[7, 300, 70_000] * 400, [0.5] * 1200])
def test_a_list_of_numbers_that_is_cut_off_is_an_error(numbers: list[object]) -> None:
    stream = pickle.dumps(numbers, protocol=2)
    for size in range(1, len(stream), 37):
        with pytest.raises(LoadError, match="It is cut off, damaged or forged"):
            read(stream[:size])


def test_a_run_of_token_ids_is_read_at_once() -> None:
    numbers = [7, 300, 70_000] * 40
    stream = whole(pickle.dumps(numbers, 2)).open()
    stream.seek(6)  # after the list, its number in the memo and the mark

    assert take_numbers(stream) == numbers
    assert stream.read() == b"e."


def test_a_number_at_the_end_of_what_is_read_at_once_is_whole() -> None:
    numbers = [7, *range(70_000, 73_000)]
    opcodes = [b"K\x07", *(b"J" + n.to_bytes(4, "little") for n in numbers[1:])]

    assert len(b"".join(opcodes)) > WINDOW
    assert read(b"\x80\x02(" + b"".join(opcodes) + b"l.") == numbers


def test_equal_token_ids_are_one_object() -> None:
    found = read(pickle.dumps([150_000] * 1000, protocol=2))

    assert isinstance(found, list)
    assert len({id(number) for number in found}) == 1

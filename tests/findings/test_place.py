"""When a place is large enough, and when two are the same, with numbers by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rounddiag.columns.predicates import Condition
from rounddiag.findings import View
from rounddiag.findings.place import Place, _as_whole_groups, _Search, find_places
from tests.findings.small import arrays, made, rounds_of, shaken


def place(*names: str, **values: Any) -> Place:
    """A place of conditions on columns, of two of four tokens."""
    given: dict[str, Any] = {
        "conditions": tuple(Condition(name, "=", 1, f"{name} 1") for name in names),
        "tokens": np.array([True, True, False, False]),
        "over": np.array([True, True, False, False]),
        "exceeding": np.array([True, True, False, False]),
        "base": np.ones(4, dtype=bool),
        "candidates": np.arange(2),
        "num_tokens": 2,
        "num_large": 0,
        "num_samples": 2,
        "share": 0.5,
        "ratio": 9.0,
        "low": 9.0,
        "high": 9.0,
        "p": 0.005,
        "log_likelihood_ratio": 200.0,
    }
    return Place(**{**given, **values})


def is_large(known: Place, *, gain: float = 101.0, chosen: float = 0.0) -> bool:
    """Ask whether it counts; its tokens differ by 0.5 nat, 0.01 being usual."""
    search: Any = SimpleNamespace(
        view=SimpleNamespace(
            abs_diff=np.array([0.5, 0.5, 0.01, 0.01]),
            usual=SimpleNamespace(usual=0.01, limit=0.04),
        ),
        searched=np.ones(4, dtype=bool),
        cells=SimpleNamespace(selection_penalty=lambda _: chosen),
        place=lambda *_: known,
        _is_small=lambda _: True,
    )
    trial: Any = SimpleNamespace(parts=(), gain=gain)
    return _Search.large_place(search, trial, known.p) is known


@pytest.mark.parametrize(
    ("scopes", "ratio", "expected"),
    [
        ({"token"}, 2.0, True),
        ({"token"}, 1.99, False),
        ({"round"}, 1.7, True),
        ({"round"}, 1.69, False),
        ({"sample"}, 1.4, True),
        ({"sample"}, 1.39, False),
        # The strictest scope of several conditions counts.
        ({"sample", "token"}, 1.99, False),
        ({"sample", "token"}, 2.0, True),
        ({"sample", "round"}, 1.69, False),
    ],
)
def test_a_place_differs_by_a_multiple_that_its_scopes_ask_for(
    scopes: set[str], ratio: float, *, expected: bool
) -> None:
    known = place("role", scopes=frozenset(scopes), ratio=ratio, low=ratio)
    assert is_large(known) is expected


@pytest.mark.parametrize(
    ("low", "gain", "chosen", "expected"),
    [
        # A small place needs a gain above 100, or along samples above 20 and twice.
        (2.1, 101.0, 0.0, True),
        (2.1, 100.0, 0.0, True),
        (2.0, 100.0, 0.0, False),
        (2.1, 20.0, 0.0, False),
        (2.1, 20.1, 0.0, True),
        # A set that the data chose is twice as far at least, by its interval's end.
        (1.99, 101.0, 1.0, False),
        (2.0, 101.0, 1.0, True),
    ],
)
def test_the_lower_end_of_the_interval_counts(
    low: float, gain: float, chosen: float, *, expected: bool
) -> None:
    known = place("round", scopes=frozenset({"round"}), ratio=9.0, low=low)
    assert is_large(known, gain=gain, chosen=chosen) is expected


def test_without_an_interval_the_ratio_counts() -> None:
    values = {"scopes": frozenset({"round"}), "low": float("nan")}
    assert is_large(place("round", ratio=2.1, **values), gain=21.0)
    assert not is_large(place("round", ratio=2.0, **values), gain=21.0)


@pytest.mark.parametrize(
    ("first", "other", "expected"),
    [
        ([1, 1, 0, 0], [1, 1, 0, 0], True),
        ([1, 1, 0, 0], [0, 1, 1, 0], False),  # one of two is half, not more
        ([1, 1, 1, 0], [0, 1, 1, 1], True),
        ([1, 1, 1, 1], [1, 1, 0, 0], False),  # all of the smaller, half of the larger
        ([1, 1, 1, 0], [1, 1, 0, 0], True),
    ],
)
def test_two_places_are_one_if_most_of_the_larger_is_shared(
    first: list[int], other: list[int], *, expected: bool
) -> None:
    both = [place("role", over=np.array(over, dtype=bool)) for over in (first, other)]
    assert both[0].shares(both[1]) is expected
    assert both[1].shares(both[0]) is expected


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ([0, 1], "in 1 whole group"),
        ([0, 1, 2, 3], "in 2 whole groups"),
        ([0, 1, 4], "in 2 whole groups"),
        ([0, 2], None),  # halves of two groups
        ([0, 1, 2], None),
        ([4], None),  # the only sample of its group says no more than the sample
    ],
)
def test_samples_that_are_whole_groups_are_named_so(
    chosen: list[int], text: str | None
) -> None:
    sample = np.arange(5)
    group = np.array([0, 0, 1, 1, 2])
    view: Any = SimpleNamespace(sample=sample, facts=SimpleNamespace(group=group))
    condition = _as_whole_groups(view, place("samples", tokens=np.isin(sample, chosen)))
    assert (condition and condition.text) == text


def test_a_place_explains_no_more_than_all() -> None:
    # Elsewhere, tokens differ by less than the usual of their bins here and there.
    for seed in range(4):
        parts = arrays(seed=seed)
        shaken(parts, rounds_of(parts) >= 2, 0.3)
        (first, *_) = find_places(View.from_batch(made(parts)))
        assert 0.9 < first.share <= 1

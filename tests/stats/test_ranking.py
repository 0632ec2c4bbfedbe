"""What is worst, by bounds that a few tokens cannot reach by accident."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import fmean

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.stats import worst_cells, worst_samples, worst_tokens

Ranking = Callable[[pd.DataFrame], pd.DataFrame]

NAN = math.nan
CELLS = ["sample", "round", "mean_abs_diff", "low", "num_tokens", "num_nonfinite"]


def frame(*cells: tuple[int, int, list[float]]) -> pd.DataFrame:
    """A token frame of (sample, round, diffs)."""
    rows = [
        (sample, index, token, diff)
        for sample, index, diffs in cells
        for token, diff in enumerate(diffs)
    ]
    columns = ["sample", "round", "token", "diff"]
    return pd.DataFrame(rows, columns=columns).astype({"diff": "float32"})


def finite(diffs: list[float]) -> list[float]:
    return [abs(diff) for diff in diffs if math.isfinite(diff)]


def spread(values: list[float], mean: float) -> float:
    return sum((value - mean) ** 2 for value in values)


def cell_bound(diffs: list[float], everything: list[float]) -> float:
    """By loops: ten tokens of the frame's mean and spread are added."""
    values, mean = finite(diffs), fmean(everything)
    num = len(values) + 10
    middle = (sum(values) + 10 * mean) / num
    squares = spread(values, middle) + 10 * (mean - middle) ** 2
    squares += 10 * spread(everything, mean) / len(everything)
    return middle - 1.96 * math.sqrt(squares / (num - 1) / num)


def sample_bound(cells: list[list[float]], everything: list[float]) -> float:
    """By loops: a round of ten tokens with the frame's mean is added."""
    own = [*filter(None, map(finite, cells))]
    if len(own) == 1:
        return cell_bound(own[0], everything)
    used = [*own, [fmean(everything)] * 10]
    num = sum(map(len, used))
    mean = sum(map(sum, used)) / num
    squares = sum((sum(values) - mean * len(values)) ** 2 for values in used)
    return mean - 1.96 * math.sqrt(len(used) / (len(used) - 1) * squares) / num


def same(values: list[float], expected: list[float]) -> bool:
    # Sums inside a round are of float32, and a bound may be near 0 beside its mean.
    return bool(np.allclose(values, expected, rtol=1e-6, atol=4e-6, equal_nan=True))


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    tokens = frame((0, 0, [0.5, NAN, -0.5, math.inf]), (0, 1, [NAN, -math.inf]))
    worst = worst_cells(tokens)
    # All are equal, and so are those that are added.
    assert worst[CELLS[2:]].to_numpy().tolist() == [[0.5, 0.5, 4, 2]]

    (sample,) = worst_samples(tokens).to_dict("records")
    assert sample == {
        "sample": 0,
        "mean_abs_diff": 0.5,
        "low": pytest.approx(0.5),
        "num_tokens": 6,
        "num_nonfinite": 4,
        "num_rounds": 2,
    }


def test_tokens_are_ranked_by_size_equals_in_their_order() -> None:
    tokens = frame((0, 0, [0.5, -2.0, NAN]), (1, 0, [2.0, math.inf, 0.25]))
    worst = worst_tokens(tokens.assign(text=[*"abcdef"]), num=3)
    assert worst["diff"].tolist() == [-2.0, 2.0, 0.5]
    assert worst["text"].tolist() == ["b", "d", "a"]
    assert worst.index.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("num", "expected"), [(0, 0), (2, 2), (3, 3), (9, 3)])
def test_no_more_are_returned_than_asked_for(num: int, expected: int) -> None:
    tokens = frame(*((sample, 0, [1.0] * 20) for sample in range(3)))
    assert len(worst_cells(tokens, num)) == len(worst_samples(tokens, num)) == expected
    assert len(worst_tokens(tokens.iloc[::20], num)) == expected


@pytest.mark.parametrize("ranking", [worst_cells, worst_tokens, worst_samples])
@pytest.mark.parametrize("diffs", [[], [NAN, math.inf]])
def test_of_nothing_finite_nothing_is_worst(
    ranking: Ranking, diffs: list[float]
) -> None:
    known = ranking(frame((0, 0, [1.0])))
    worst = ranking(frame((0, 0, diffs)))
    assert len(worst) == 0
    assert [*worst.columns] == [*known.columns]


DIFFS = st.lists(
    st.floats(-4, 4, width=16) | st.sampled_from([NAN, math.inf]),
    min_size=1,
    max_size=6,
)


@given(st.lists(st.tuples(st.integers(0, 3), DIFFS), min_size=1, max_size=12))
def test_every_bound_is_that_of_a_loop(cells: list[tuple[int, list[float]]]) -> None:
    ordered = sorted(cells, key=lambda cell: cell[0])
    numbered = [(s, i, diffs) for i, (s, diffs) in enumerate(ordered)]
    tokens = frame(*numbered)

    everything = [x for _, _, diffs in numbered for x in finite(diffs)]
    worst = worst_cells(tokens, num=99)
    by_round = {index: diffs for _, index, diffs in numbered if finite(diffs)}
    assert sorted(worst["round"]) == sorted(by_round)
    expected = [cell_bound(by_round[index], everything) for index in worst["round"]]
    assert same(worst["low"].tolist(), expected)
    known = worst["low"].tolist()
    assert known == sorted(known, reverse=True)

    samples = worst_samples(tokens, num=99)
    bounds = [
        sample_bound([d for s, d in ordered if s == sample], everything)
        for sample in samples["sample"]
    ]
    assert same(samples["low"].tolist(), bounds)
    sizes = sorted(
        (x for diffs in by_round.values() for x in finite(diffs)), reverse=True
    )
    assert worst_tokens(tokens, num=4)["diff"].abs().tolist() == sizes[:4]

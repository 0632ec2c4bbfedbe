"""More of each round of a sample than its frame has, checked by hand and by numpy."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import strategies as st

from rounddiag import round_frame
from rounddiag.core.scores import pair_of
from rounddiag.schema import Pair
from rounddiag.stats import cell_frame
from tests.batches import hand_batch, padded

NAN, INF = math.nan, math.inf

FINITE = st.floats(-20, 20, width=32)
RUNS = st.lists(st.lists(FINITE | st.sampled_from([NAN, INF, -INF]), max_size=9))


def test_a_cell_has_what_its_round_has_and_more() -> None:
    cells, rounds = cell_frame(hand_batch()), round_frame(hand_batch())
    assert [*cells] == [*rounds, "prob_diff", "beyond", "p95_abs_diff"]
    assert cells[[*rounds]].equals(rounds)
    # Diffs 0.5, -0.25 | 1; 0, 0.25, -0.5 | 2; -1: beyond log 2 are 1, 2 and -1.
    assert cells["beyond"].tolist() == [0, 1, 0, 1, 1]
    first = (math.exp(-0.5) - math.exp(-1) + math.exp(-1) - math.exp(-1.25)) / 2
    assert cells["prob_diff"][0] == pytest.approx(first)
    wanted = [0.25 + 0.95 * 0.25, 1, 0.25 + 0.9 * 0.25, 2, 1]
    assert cells["p95_abs_diff"].tolist() == pytest.approx(wanted)


def test_only_what_is_asked_for_is_added() -> None:
    added = set(cell_frame(hand_batch(), ["beyond"])) - set(round_frame(hand_batch()))
    assert added == {"beyond"}


def test_tokens_without_a_finite_diff_do_not_count() -> None:
    old = [[-0.0, NAN, 0.0, NAN, 0.0, -INF]]
    batch = padded([[1, 1, 0, 1, 0, 1]], old, [[-1.0] * 6])
    cells = cell_frame(batch)
    assert cells["beyond"].tolist() == pytest.approx([1, NAN, NAN], nan_ok=True)
    assert cells["p95_abs_diff"].tolist() == pytest.approx([1, NAN, NAN], nan_ok=True)
    wanted = [1 - math.exp(-1), NAN, NAN]
    assert cells["prob_diff"].tolist() == pytest.approx(wanted, nan_ok=True)


def test_cells_are_of_the_pair_of_their_batch() -> None:
    batch = hand_batch(
        scores={"current": torch.full((3, 6), -1.5)}, meta={"pair": ["current", "ref"]}
    )
    assert pair_of(cell_frame(batch)) == Pair("current", "ref")

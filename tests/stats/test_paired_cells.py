"""Differences of single rounds of samples."""

from __future__ import annotations

import math
import re
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rounddiag import round_frame, token_frame
from rounddiag.errors import FrameError
from rounddiag.stats.pairing import pair_samples, paired_cells
from tests.batches import hand_batch, masks, padded, random_log_probs

NAN = math.nan


def rounds(*rows: tuple[int, int, int, float]) -> pd.DataFrame:
    columns = ["sample", "round", "num_tokens", "mean_abs_diff"]
    return pd.DataFrame(rows, columns=columns)


def test_a_cell_is_a_round_of_a_pair_with_both_means() -> None:
    before = rounds((0, 0, 3, 0.25), (1, 0, 4, 1.0), (1, 1, 5, 2.0))
    after = rounds((0, 0, 6, 1.5), (0, 1, 7, 1.0), (1, 0, 8, 0.75))
    cells = paired_cells(before, after, pair_samples(["x", "y"], ["y", "x"]))
    assert cells.to_dict("list") == {
        "sample": [0, 0, 1],
        "round": [0, 1, 0],
        "num_tokens": [6, 7, 8],
        "mean_abs_diff": [1.5, 1.0, 0.75],
        "sample_id": ["y", "y", "x"],
        "baseline_sample": [1, 1, 0],
        "num_baseline_tokens": [4, 5, 3],
        "baseline_mean": [1.0, 2.0, 0.25],
        "difference": [0.5, -1.0, 0.5],
    }
    assert cells.attrs == {"metric": "mean_abs_diff"}


def test_a_mean_that_is_not_known_leaves_no_difference() -> None:
    before, after = rounds((0, 0, 1, NAN)), rounds((0, 0, 1, 1.0))
    cells = paired_cells(before, after, pair_samples(["x"], ["x"]))
    assert cells["difference"].isna().tolist() == [True]
    assert cells["mean_abs_diff"].tolist() == [1.0]


def test_a_batch_does_not_differ_from_itself() -> None:
    frame = round_frame(hand_batch())
    cells = paired_cells(frame, frame, pair_samples("abc", "abc"), "k3")
    assert cells["difference"].tolist() == [0.0] * len(frame)
    assert cells.attrs == {"metric": "k3"}


def test_of_another_pair_of_scores_the_frame_says_so() -> None:
    frame = round_frame(hand_batch(), a="rollout", b="old")
    cells = paired_cells(frame, frame, pair_samples("abc", "abc"))
    assert cells.attrs["pair"] == ["rollout", "old"]


def test_ids_that_a_frame_has_already_are_those_of_the_pairs() -> None:
    frame = round_frame(hand_batch()).assign(sample_id="old name")
    cells = paired_cells(frame, frame, pair_samples("abc", "abc"))
    assert [*cells["sample_id"].unique()] == ["a", "b", "c"]


def test_a_frame_that_lacks_the_metric_is_an_error() -> None:
    frame = rounds((0, 0, 1, 1.0))
    expected = (
        "expected a frame with one row per sample and round and the columns ['sample',"
        " 'round', 'num_tokens', 'k3']; found ['sample', 'round', 'num_tokens',"
        " 'mean_abs_diff'], without ['k3']."
        " Build it with `rounddiag.round_frame(batch)`."
    )
    with pytest.raises(FrameError, match=re.escape(expected)):
        paired_cells(frame, frame, pair_samples(["x"], ["x"]), "k3")


def random_batch(mask: list[list[int]], seed: int, ids: list[str]) -> Any:
    shape = (len(mask), len(mask[0]) if mask else 0)
    return padded(
        torch.tensor(mask, dtype=torch.int64).reshape(shape),
        random_log_probs(shape, seed),
        random_log_probs(shape, seed + 1),
        sample_ids=ids[: shape[0]],
    )


@settings(deadline=None)
@given(
    masks=st.tuples(masks(), masks()),
    ids=st.tuples(st.permutations("abcde"), st.permutations("abcde")),
)
def test_cells_are_those_that_a_loop_over_tokens_finds(masks: Any, ids: Any) -> None:
    before, after = (
        random_batch(mask, seed, names)
        for mask, names, seed in zip(masks, ids, (0, 7), strict=True)
    )
    pairs = pair_samples(before.sample_ids, after.sample_ids)
    sizes: list[dict[Any, list[float]]] = [{}, {}]
    for of_cell, batch in zip(sizes, (before, after), strict=True):
        frame = token_frame(batch)
        for *cell, diff in frame[["sample", "round", "diff"]].to_numpy().tolist():
            of_cell.setdefault(tuple(cell), []).append(abs(diff))
    expected = {}
    for name, baseline, sample in pairs.itertuples(index=False):
        for (number, index), of_other in sizes[1].items():
            of_first = sizes[0].get((baseline, index))
            if number == sample and of_first is not None:
                means = sum(of_first) / len(of_first), sum(of_other) / len(of_other)
                expected[name, index] = means[1] - means[0]
    cells = paired_cells(round_frame(before), round_frame(after), pairs)
    keys = zip(cells["sample_id"], cells["round"], strict=True)
    values = dict(zip(keys, cells["difference"], strict=True))
    assert values == pytest.approx(expected, abs=1e-6)

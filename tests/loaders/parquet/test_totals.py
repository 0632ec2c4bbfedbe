"""The totals in a footer give the summary that the columns give."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rounddiag as rd
from rounddiag.loaders.parquet.totals import read_totals, totals_entry
from rounddiag.stats.summary import summary_from_totals
from tests.batches import hand_batch, padded

VALUES = [0.0, -0.5, -1.25, -3.0, float("nan"), float("-inf")]


@given(
    cells=st.lists(
        st.lists(
            st.tuples(st.booleans(), st.sampled_from(VALUES), st.sampled_from(VALUES)),
            min_size=5,
            max_size=5,
        ),
        min_size=1,
        max_size=12,
    ),
    num_groups=st.sampled_from([0, 1, 3, 11]),
)
def test_the_summary_is_that_of_the_columns(
    cells: list[list[tuple[bool, float, float]]], num_groups: int
) -> None:
    mask, old, rollout = (
        [[cell[part] for cell in row] for row in cells] for part in range(3)
    )
    batch = padded([[int(one) for one in row] for row in mask], old, rollout)
    if num_groups:
        names = tuple(f"g{sample % num_groups}" for sample in range(len(batch)))
        batch = replace(batch, group_ids=names)
    totals = read_totals(totals_entry(batch))
    found = pd.DataFrame(summary_from_totals(totals["rounds"]))
    expected = rd.round_summary(batch)
    if expected["num_nonfinite"].any():
        # A sample without any finite diff is left out of the draws of a footer only.
        found, expected = (
            one.drop(columns=["ci_low", "ci_high"]) for one in (found, expected)
        )
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12)


def test_the_means_of_a_batch() -> None:
    batch = hand_batch()
    entropy = torch.full_like(batch.log_probs("old"), 0.5)
    entropy[batch.response_mask == 0] = torch.nan
    first = int(batch.response_mask.nonzero()[0])
    entropy[first] = torch.nan  # left out
    entropy[first + 1] = 2.0
    rewards = torch.tensor([1.0, 0.0, torch.nan])[: len(batch)]
    batch = replace(batch, entropy=entropy, rewards=rewards)
    totals = read_totals(totals_entry(batch))
    num = batch.num_tokens
    assert totals["entropy"] == pytest.approx((0.5 * (num - 2) + 2.0) / (num - 1))
    assert totals["reward"] == pytest.approx(0.5)
    assert (totals["num_samples"], totals["length"]) == (len(batch), num / len(batch))


def alternating(num_samples: int, num_rounds: int) -> rd.Batch:
    """Every second position is a round of its own."""
    mask = np.tile([1, 0], (num_samples, num_rounds))
    return padded(mask, -1.5 * mask, -1.0 * mask)


def test_totals_that_would_be_large_beside_the_columns_are_left_out(
    tmp_path: Path,
) -> None:
    few, many = alternating(40, 100), alternating(40, 1000)
    assert totals_entry(few)
    assert totals_entry(many) == {}
    rd.save(many, tmp_path / "step_0.parquet")
    summary = rd.open_run(tmp_path).summary()
    assert len(summary) == 1000
    assert summary["mean"].tolist() == [0.5] * 1000


def test_a_footer_is_small_beside_the_columns(tmp_path: Path) -> None:
    mask = np.tile([1] * 8 + [0] * 8, (300, 60))
    noise = np.random.default_rng(0).normal(size=mask.shape).astype(np.float32)
    rd.save(padded(mask, -1 + noise, -1 - noise), tmp_path / "batch.parquet")
    metadata = pq.read_schema(tmp_path / "batch.parquet").metadata
    entry = metadata[b"rounddiag.totals"]
    assert len(json.loads(entry)["rounds"]) == 60
    assert len(entry) < (tmp_path / "batch.parquet").stat().st_size / 4


def test_totals_of_another_version_count_as_none() -> None:
    ((key, entry),) = totals_entry(hand_batch()).items()
    other = json.dumps({**json.loads(entry), "version": 2}).encode()
    assert read_totals({key: other}) is None
    assert read_totals({key: b"[1"}) is None
    assert read_totals(None) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"round": 1},
        {"num_tokens": True},
        {"num_tokens": 0.5},
        {"num_tokens": 2},
        {"num_nonfinite": -1},
        {"num_samples": 0},
        {"num_samples": 10**6},
        {"mean_abs_diff": "7"},
        {"mean_abs_diff": 1e308},
        {"mean_abs_diff": -0.5},
        {"mean_diff": 9.0},
        {"max": 0.0},
        {"p95": [1.0]},
        {"cluster_tokens": [1]},
    ],
)
def test_totals_that_contradict_themselves_count_as_none(
    changes: dict[str, Any],
) -> None:
    ((key, entry),) = totals_entry(hand_batch()).items()
    totals = json.loads(entry)
    assert read_totals({key: entry}) == totals
    totals["rounds"][0] |= changes
    assert read_totals({key: json.dumps(totals).encode()}) is None

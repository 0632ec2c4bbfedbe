"""Batches and frames of them are paired alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rounddiag import Batch, load, token_frame
from rounddiag.stats import compare_batches


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    return [load(f"sample_data/{name}.parquet") for name in ("healthy", "stale")]


def named_tokens(batch: Batch, *names: str) -> pd.DataFrame:
    """The token frame, with the ids of its samples and groups."""
    tokens = token_frame(batch)
    known = {"sample_id": batch.sample_ids, "group_id": batch.group_ids}
    sample = tokens["sample"].to_numpy()
    return tokens.assign(
        **{name: np.array(known[name], dtype=object)[sample] for name in names}
    )


def test_frames_with_ids_and_groups_differ_as_their_batches(
    batches: list[Batch],
) -> None:
    frames = [named_tokens(batch, "sample_id", "group_id") for batch in batches]
    pd.testing.assert_frame_equal(compare_batches(frames), compare_batches(batches))


def test_frames_without_ids_are_not_paired(batches: list[Batch]) -> None:
    frames = [named_tokens(batch, "group_id") for batch in batches]
    assert (compare_batches(frames)["num_pairs"] == 0).all()


def test_a_few_samples_of_two_frames_are_paired_where_they_are_the_same(
    batches: list[Batch],
) -> None:
    frames = [named_tokens(batch, "sample_id") for batch in batches]
    few = [frame[frame["sample"] >= 60] for frame in frames]
    compared = compare_batches(few)
    assert compared["num_pairs"].unique().tolist() == [4]
    alone = [frame.iloc[:0] for frame in few]
    assert compare_batches([few[0], alone[0]])["num_pairs"].unique().tolist() == [0]


def test_a_frame_whose_groups_are_not_all_known_is_no_hindrance(
    batches: list[Batch],
) -> None:
    first, other = (named_tokens(batch, "sample_id", "group_id") for batch in batches)
    first.loc[first["sample"] == 3, "group_id"] = None
    assert compare_batches([first, other])["num_pairs"].unique().tolist() == [64]

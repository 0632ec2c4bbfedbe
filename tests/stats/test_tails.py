"""Tails of |diff|: exact at every size, for each group of rounds."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.stats.tail import overall, tail_shares
from tests.batches import hand_batch

LN2, LN5 = float(np.log(2)), float(np.log(5))


def at(shares: pd.DataFrame, rounds: str, size: float) -> float:
    row = shares[(shares["rounds"] == rounds) & (shares["abs_diff"] == size)]
    return float(row["share"].iloc[0])


def test_what_is_not_finite_is_left_out_and_counted_for_its_group() -> None:
    frame = pd.DataFrame(
        {"round": [0, 0, 1, 1], "diff": [0.5, np.nan, np.inf, -np.inf]}
    )
    shares = tail_shares(frame)

    first, second = (shares[shares["rounds"] == name] for name in ("0", "1"))
    assert set(first["num_nonfinite"]) == {1}
    assert at(shares, "0", 0.5) == 1.0
    assert second["num_nonfinite"].tolist() == [2]
    assert second["num_tokens"].tolist() == [0]
    assert second["share"].isna().all()


def test_engines_that_agree_have_no_size_but_zero() -> None:
    shares = tail_shares(pd.DataFrame({"round": [0, 0, 1], "diff": [0.0, -0.0, 0.0]}))

    assert shares["abs_diff"].tolist() == [0.0, 0.0]
    assert shares["num_tokens"].tolist() == [2, 1]


def test_a_million_tokens_are_a_few_hundred_points_a_group() -> None:
    generator = np.random.default_rng(0)
    diff = generator.standard_t(2, 1_000_000) * 0.01
    shares = tail_shares(pd.DataFrame({"round": 0, "diff": diff}))

    assert len(shares) < 700
    assert shares["num_tokens"].iloc[-1] == 1
    assert shares["abs_diff"].iloc[-1] == np.abs(diff).max()


values = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(st.integers(0, 9), values), max_size=40))
def test_every_share_is_the_one_counted_by_hand(rows: list[tuple[int, float]]) -> None:
    frame = pd.DataFrame(rows, columns=["round", "diff"])
    frame = frame.astype({"round": "int32", "diff": "float32"})
    labels = [token_group(index) for index in frame["round"]]
    size = frame["diff"].abs().to_numpy(np.float64)
    for name, part in tail_shares(frame).groupby("rounds"):
        of_group = size[np.array(labels) == name]
        counted = [(of_group >= x).sum() for x in part["abs_diff"]]
        assert part["num_tokens"].tolist() == counted
        assert part["abs_diff"].max() == of_group.max()


def token_group(index: int) -> str:
    limits = {0: "0", 1: "1", 2: "2 to 3", 4: "4 to 7", 8: "8 to 15"}
    return limits[max(low for low in limits if low <= index)]


def test_a_column_divides_tokens_in_place_of_their_rounds() -> None:
    batch = hand_batch(sample_columns={"rank": np.array([7, 3, 7])})
    shares = tail_shares(batch, by="rank")

    assert shares.columns[0] == "rank"
    assert shares.groupby("rank")["num_tokens"].max().to_dict() == {3: 4, 7: 4}
    assert shares.groupby("rank")["abs_diff"].max().to_dict() == {3: 2.0, 7: 1.0}


def test_what_has_no_value_is_a_part_of_its_own() -> None:
    frame = pd.DataFrame({"round": 0, "diff": [1.0, 2.0], "rank": [0.0, np.nan]})
    shares = tail_shares(frame, by="rank")

    assert shares.groupby("rank", dropna=False)["abs_diff"].max().tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("diffs", "line"),
    [
        ([1.0, -1.0, 3.0, -1.5] * 100_000, "mean diff +0.375 nat, |diff| > 1 in 50 %"),
        ([np.nan, np.inf, -np.inf, -2.0], "mean diff −2 nat, |diff| > 1 in 100 %"),
        ([np.nan, np.inf, -np.inf], ""),
        ([], ""),
    ],
)
def test_a_batch_in_a_line(diffs: list[float], line: str) -> None:
    assert overall(np.array(diffs, dtype=np.float32)) == line

"""Legs of the importance ratio."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.errors import BatchError, FrameError


def batch_of(**more: Any) -> rd.Batch:
    """Two samples of two rounds of one token each."""
    mask = torch.tensor([[1, 0, 1], [1, 0, 1]])
    rollout = torch.full((2, 3), -2.0)
    diff = torch.tensor([[0.1, 9.0, 0.2], [-0.3, 9.0, 0.4]])
    return rd.Batch.from_padded(
        response_ids=torch.ones_like(mask),
        response_mask=mask,
        rollout_log_probs=rollout,
        old_log_probs=rollout + diff,
        **more,
    )


def by_leg(rows: Any, column: str) -> dict[str, list[float]]:
    return {leg: part[column].tolist() for leg, part in rows.groupby("leg")}


def test_gap_and_staleness_are_one_leg_where_nothing_tells_them_apart() -> None:
    rows = rd.legs(batch_of())
    means = by_leg(rows, "mean_log_ratio")
    assert {*means} == {"engine gap and staleness", "whole"}
    assert means["whole"] == pytest.approx([-0.1, 0.3])
    assert by_leg(rows, "mean_abs_log_ratio")["whole"] == pytest.approx([0.2, 0.3])
    assert by_leg(rows, "num_tokens")["whole"] == [2, 2]


def test_with_the_newest_weights_everywhere_it_is_the_engine_gap() -> None:
    rows = rd.legs(batch_of(sample_columns={"weight_version": np.array([7, 7])}))
    assert {*rows["leg"]} == {"engine gap", "whole"}


def test_legs_add_up_to_the_whole_ratio() -> None:
    batch = batch_of(
        scores={
            "current": torch.full((2, 3), -1.5),
            "behaviour": torch.full((2, 3), -1.9),
        }
    )
    rows = rd.legs(batch, behaviour="behaviour")
    means = by_leg(rows, "mean_log_ratio")
    assert means["engine gap"] == pytest.approx([0.1, 0.1])
    assert means["staleness"] == pytest.approx([-0.2, 0.2])
    assert means["update"] == pytest.approx([0.6, 0.2])
    assert means["whole"] == pytest.approx([0.5, 0.5])


def test_sample_size_and_k3() -> None:
    rows = rd.legs(batch_of())
    ratios = [math.exp(0.1), math.exp(-0.3)]
    size = sum(ratios) ** 2 / (2 * sum(one**2 for one in ratios))
    assert by_leg(rows, "effective_sample_size")["whole"][0] == pytest.approx(size)
    each = [math.expm1(d) - d for d in (0.1, -0.3)]
    assert by_leg(rows, "k3")["whole"][0] == pytest.approx(sum(each) / 2)


def test_lag_counts_from_the_newest_weights_of_the_batch() -> None:
    batch = batch_of(sample_columns={"weight_version": np.array([3, 5])})
    rows = rd.legs(batch, by="lag")
    whole = rows[rows["leg"] == "whole"]
    assert whole["lag"].tolist() == [0, 2]
    assert whole["mean_log_ratio"].tolist() == pytest.approx([0.05, 0.15])


def test_a_version_that_is_unknown_is_no_lag_of_zero() -> None:
    columns = {"weight_version": np.array([None, 5], dtype=object)}
    rows = rd.legs(batch_of(sample_columns=columns))
    assert "engine gap" not in {*rows["leg"]}


def test_tokens_that_are_not_finite_are_left_out_and_counted() -> None:
    batch = batch_of()
    batch.log_probs("old")[0] = math.nan
    rows = rd.legs(batch)
    assert rows.attrs["num_nonfinite"] == 1
    assert by_leg(rows, "num_tokens")["whole"] == [1, 2]


def test_what_is_missing_is_named() -> None:
    with pytest.raises(BatchError, match="`weight_version`"):
        rd.legs(batch_of(), by="lag")
    with pytest.raises(FrameError, match="nothing"):
        rd.legs(batch_of(), by="nothing")
    with pytest.raises(BatchError, match="nobody"):
        rd.legs(batch_of(), behaviour="nobody")

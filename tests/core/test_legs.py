"""Legs of the importance ratio."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.core.loss_ratio import is_bypassed
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


def bypassed() -> rd.Batch:
    """The log-probs of the rollout as `old`, and a score by its weights."""
    scores = {name: torch.full((2, 3), v) for name, v in SCORES.items()}
    batch = batch_of(scores=scores)
    return replace(batch, old_log_probs=batch.rollout_log_probs)


SCORES = {"current": -1.5, "behaviour": -1.9}


def by_leg(rows: Any, column: str) -> dict[str, list[float]]:
    return {leg: part[column].tolist() for leg, part in rows.groupby("leg")}


def test_gap_and_staleness_are_one_leg_where_nothing_tells_them_apart() -> None:
    rows = rd.legs(batch_of())
    means = by_leg(rows, "mean_log_ratio")
    assert {*means} == {"engine gap and staleness", "whole"}
    assert means["whole"] == pytest.approx([-0.1, 0.3])
    assert by_leg(rows, "mean_abs_log_ratio")["whole"] == pytest.approx([0.2, 0.3])
    assert by_leg(rows, "num_tokens")["whole"] == [2, 2]


@pytest.mark.parametrize(
    ("versions", "step", "leg"),
    [
        ([7, 7], 7, "engine gap"),
        ([7, 7], None, "engine gap and staleness"),  # the newest can be stale itself
        ([7, 7], 8, "engine gap and staleness"),
        ([6, 7], 7, "engine gap and staleness"),
    ],
)
def test_weights_of_the_own_step_leave_the_engine_gap(
    versions: list[int], step: int | None, leg: str
) -> None:
    columns = {"weight_version": np.array(versions)}
    rows = rd.legs(batch_of(sample_columns=columns, step=step))
    assert {*rows["leg"]} == {leg, "whole"}


def test_without_a_pass_before_the_update_all_legs_are_one() -> None:
    for batch in (bypassed(), replace(bypassed(), old_log_probs=None)):
        assert by_leg(rd.legs(batch), "mean_log_ratio") == {
            "engine gap, staleness and update": pytest.approx([0.5, 0.5]),
            "whole": pytest.approx([0.5, 0.5]),
        }


def test_an_unknown_token_does_not_hide_a_bypass() -> None:
    batch = bypassed()
    old = batch.log_probs("rollout").clone()
    old[0] = math.nan
    rows = rd.legs(replace(batch, old_log_probs=old))
    assert {*rows["leg"]} == {"engine gap, staleness and update", "whole"}
    unknown = torch.full_like(old, math.nan)
    assert not is_bypassed(replace(batch, old_log_probs=unknown))


def test_the_checkpoint_of_the_sampler_splits_the_legs_of_a_bypass() -> None:
    batch = replace(bypassed(), old_log_probs=None)
    rows = rd.legs(batch, by=None, behaviour="behaviour")
    means = by_leg(rows, "mean_log_ratio")
    assert means == {
        "engine gap": pytest.approx([0.1]),
        "staleness and update": pytest.approx([0.4]),
        "whole": pytest.approx([0.5]),
    }


def test_legs_add_up_to_the_whole_ratio() -> None:
    batch = batch_of(scores={name: torch.full((2, 3), v) for name, v in SCORES.items()})
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


@pytest.mark.parametrize(
    ("by", "lags", "means"),
    [
        # Diffs of 0.1 and 0.2, -0.3 and 0.4; versions 3 and 5, 5 and 5.
        ("lag", [0, 2], [0.1, 0.1]),
        ("oldest_lag", [0, 2], [0.05, 0.15]),
        ("newest_lag", [0], [0.1]),
    ],
)
def test_a_sample_with_weights_of_several_versions(
    by: str, lags: list[int], means: list[float]
) -> None:
    columns = {
        "sample": np.array([0, 0, 1, 1]),
        "round": np.array([0, 1, 0, 1]),
        "weight_version": np.array([3, 5, 5, 5]),
    }
    rows = rd.legs(batch_of(round_columns=columns), by=by)
    whole = rows[rows["leg"] == "whole"]
    assert whole[by].tolist() == lags
    assert whole["mean_log_ratio"].tolist() == pytest.approx(means)


def test_lowest_and_highest_version_of_a_sample() -> None:
    columns = {
        "min_global_steps": np.array([3, 4]),
        "max_global_steps": np.array([5, 4]),
    }
    batch = batch_of(sample_columns=columns)
    lags = {
        by: rd.legs(batch, by=by)[by].unique().tolist()
        for by in ("oldest_lag", "newest_lag")
    }
    assert lags == {"oldest_lag": [1, 2], "newest_lag": [0, 1]}


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

"""The weights behind each token: their versions, and the lag behind the trainer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.core.versions import Versions

DIFFS = torch.tensor([[0.01, 0.02, 0.3], [0.5, 0.01, 0.01]])


def batch_of(versions: Any, **more: Any) -> rd.Batch:
    """Two samples of one round of three tokens, with a version of each token."""
    mask = torch.ones(2, 3, dtype=torch.int64)
    rollout = torch.full((2, 3), -2.0)
    return rd.Batch.from_padded(
        response_ids=mask,
        response_mask=mask,
        rollout_log_probs=rollout,
        old_log_probs=rollout + DIFFS,
        token_columns={"weight_versions": torch.tensor(versions)},
        **more,
    )


def test_a_sequence_that_spans_two_versions_is_split() -> None:
    rows = rd.legs(batch_of([[5, 5, 4], [3, 5, 5]]), by="lag")
    whole = rows[rows["leg"] == "whole"]
    assert whole["lag"].tolist() == [0, 1, 2]
    assert whole["num_tokens"].tolist() == [4, 1, 1]
    assert whole["mean_abs_log_ratio"].tolist() == pytest.approx([0.0125, 0.3, 0.5])


def test_a_version_that_is_no_number_is_unknown() -> None:
    versions = Versions.of(batch_of([[5.0, np.inf, 4.0], [np.nan, 5.0, 5.0]]))
    assert versions is not None
    np.testing.assert_array_equal(versions.lag(), [0, np.nan, 1, np.nan, 0, 0])


def test_lag_0_is_the_engine_gap_and_a_negative_lag_is_no_staleness() -> None:
    batch = batch_of([[7, 7, 7], [5, 9, 7]], step=7)
    rows = rd.legs(batch, by="lag")
    parts = rows[rows["leg"] != "whole"]
    assert dict(zip(parts["lag"], parts["leg"], strict=True)) == {
        -2: "engine gap and newer weights",
        0: "engine gap",
        2: "engine gap and staleness",
    }


@pytest.mark.parametrize(
    ("step", "meta", "lags", "is_known"),
    [
        (None, {}, [0, 2], False),  # behind the newest of the batch
        (6, {}, [0, 2], False),  # versions may be counted from the next step on
        (5, {}, [-2, 0], True),
        (7, {}, [0, 2], True),
        (99, {}, [0, 2], False),  # versions that may be counted otherwise
        (1, {}, [0, 2], False),
        (1, {"trainer_version": 6}, [-1, 1], True),
        (99, {"trainer_version": 9}, [2, 4], True),  # all are older
    ],
)
def test_what_the_lag_counts_from(
    step: int | None, meta: dict[str, int], lags: list[int], is_known: bool
) -> None:
    batch = batch_of([[7, 7, 7], [5, 5, 5]], step=step, meta=meta)
    versions = Versions.of(batch)
    assert versions is not None
    assert np.unique(versions.lag()).tolist() == lags
    assert versions.is_trainer_known is is_known
    # What may be stale throughout shows no engine gap.
    legs = rd.legs(batch, by="lag")["leg"].tolist()
    assert ("engine gap" in legs) == (is_known and 0 in lags)


@pytest.mark.parametrize(("step", "lags"), [(10, None), (8, [0]), (7, [0]), (3, None)])
def test_verl_sends_the_weights_of_a_step_under_its_number(
    step: int, lags: list[int] | None
) -> None:
    columns = {
        name: np.array([7, 7]) for name in ("min_global_steps", "max_global_steps")
    }
    batch = replace(batch_of([[0] * 3] * 2), token_columns={}, sample_columns=columns)
    versions = Versions.of(replace(batch, step=step))
    assert versions is not None
    assert versions.is_trainer_known == (lags is not None)
    assert np.unique(versions.lag()).tolist() == (lags or [0])


def test_each_sample_can_have_a_trainer_of_its_own() -> None:
    columns = {"trainer_version": np.array([8, 6])}
    versions = Versions.of(batch_of([[7] * 3, [5] * 3], sample_columns=columns))
    assert versions is not None
    assert versions.lag().tolist() == [1] * 6


def test_versions_that_are_unknown_have_a_row_of_their_own() -> None:
    nan = float("nan")
    rows = rd.legs(batch_of([[7.0, nan, nan], [7.0, 7.0, 6.0]]), by="lag")
    whole = rows[rows["leg"] == "whole"]
    assert whole["lag"].tolist()[:2] == [0, 1]
    assert np.isnan(whole["lag"].tolist()[2])
    assert whole["num_tokens"].tolist() == [3, 1, 2]

"""Batches of which a file holds a part; `tests/capture` writes such files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rounddiag import round_summary, schema
from tests.batches import hand_batch

# What round 0 of ten samples came to, of which three are in the batch.
ROUND = {
    "round": 0,
    "num_samples": 10,
    "num_tokens": 20,
    "num_nonfinite": 0,
    "mean_abs_diff": 0.5,
    "mean_diff": -0.25,
    "k3": 0.125,
    "prob_diff": 0.1,
    "p50": 0.25,
    "p95": 1.0,
    "p99": 1.5,
    "max": 2.0,
    "cluster_abs_diff": [1.0] * 10,
    "cluster_tokens": [2] * 10,
}
LATER = {**ROUND, "round": 1}


def part(**facts: Any) -> Any:
    rounds = [ROUND, LATER]
    capture = {"num_samples": 10, "num_saved": 3, "rounds": rounds, **facts}
    ranks = {"rank": np.arange(3)}
    return replace(hand_batch(), sample_columns=ranks, meta={"capture": capture})


def test_the_rows_of_the_whole_batch_are_the_summary() -> None:
    summary = round_summary(part())
    assert [*summary] == [column.name for column in schema.SUMMARY.columns]
    row = summary.iloc[0].to_dict()
    named = {name: ROUND[name] for name in row if name in ROUND}
    assert {name: row[name] for name in named} == named
    # All clusters have one mean, so the interval is that mean.
    assert (row["ci_low"], row["ci_high"]) == (pytest.approx(0.5), pytest.approx(0.5))


def test_columns_newer_than_the_file_are_nan() -> None:
    row = round_summary(part()).iloc[0]
    assert row[["p90", "share_zero"]].isna().all()
    assert row[["mean", "share_nonfinite", "is_few"]].tolist() == [0.5, 0, False]
    without_k3 = {name: value for name, value in ROUND.items() if name != "k3"}
    row = round_summary(part(rounds=[without_k3, LATER])).iloc[0]
    assert np.isnan(row["k3"])
    assert row["num_tokens"] == 20
    later = part(rounds=[{**ROUND, "p90": 0.75, "share_zero": 0.25}, LATER])
    assert round_summary(later)[["p90", "share_zero"]].iloc[0].tolist() == [0.75, 0.25]


def test_the_whole_has_intervals_of_any_confidence() -> None:
    apart = [{**ROUND, "cluster_abs_diff": [*range(10)]}, LATER]
    narrow, wide = (
        round_summary(part(rounds=apart), ci=ci).iloc[0] for ci in (0.5, 0.99)
    )
    assert wide["ci_low"] < narrow["ci_low"] < narrow["ci_high"] < wide["ci_high"]


@pytest.mark.parametrize(
    "options",
    [
        {"metric": "k3"},
        {"weight": "sample"},
        {"last_aligned": True},
        {"by": "rank"},
        {"a": "rollout"},
    ],
)
def test_another_summary_is_of_the_samples_in_the_file(options: dict[str, Any]) -> None:
    summary = round_summary(part(), **options)
    assert summary["num_samples"].sum() == 5
    assert summary.equals(round_summary(replace(part(), meta={}), **options))


def test_the_summary_of_a_selection_is_of_its_samples() -> None:
    summary = round_summary(part().where([True, True, False]))
    assert summary.equals(round_summary(replace(part(), meta={})[:2]))


def test_samples_as_clusters_are_not_known_where_there_are_groups() -> None:
    grouped = replace(part(), group_ids=("a", "a", "b"))
    assert round_summary(grouped)["num_samples"].tolist() == [10, 10]
    assert round_summary(grouped, cluster="group")["num_samples"].tolist() == [10, 10]
    summary = round_summary(grouped, cluster="sample")
    assert summary["num_samples"].tolist() == [3, 2]


@pytest.mark.parametrize(
    "rounds", [None, 3, [3], [{}], [{**ROUND, "round": "x"}], [ROUND]]
)
def test_statistics_that_are_broken_are_not_used(rounds: object) -> None:
    summary = round_summary(part(rounds=rounds))
    assert summary["num_samples"].tolist() == [3, 2]


@pytest.mark.parametrize("capture", [None, "x", {}, {"num_samples": 3}])
def test_a_whole_batch_is_summarised_as_it_is(capture: object) -> None:
    whole = replace(part(), meta={"capture": capture})
    assert round_summary(whole).equals(round_summary(hand_batch()))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_samples": 2},
        {"num_tokens": 3},
        {"num_nonfinite": -1},
        {"mean_abs_diff": 0.0},
        {"round": 1},
    ],
)
def test_totals_that_the_saved_samples_exceed_are_not_used(
    changes: dict[str, Any],
) -> None:
    summary = round_summary(part(rounds=[{**ROUND, **changes}, LATER]))
    assert summary.equals(round_summary(hand_batch()))


def test_totals_are_not_used_once_a_column_was_changed() -> None:
    batch = part()
    summary = round_summary(replace(batch, meta={}))
    sums = (summary["mean_abs_diff"] * summary["num_tokens"]).tolist()
    known = part(saved_rounds=sums)
    assert round_summary(known)["num_samples"].tolist() == [10, 10]
    old = batch.log_probs("rollout") + 0.5 * (
        batch.log_probs("old") - batch.log_probs("rollout")
    )
    changed = replace(known, old_log_probs=old)
    assert round_summary(changed)["num_samples"].tolist() == [3, 2]

"""The table of verdicts: levels, limits and findings written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rounddiag.findings.finding import Finding, FindingKind
from rounddiag.findings.level import Level
from rounddiag.findings.reference import Range
from rounddiag.findings.verdict import Verdict, find_verdict, hold, is_at_least

# Usual up to 0.01 nat, limits of 0.04 nat and of 0.1 for k3.
USUAL = Range(meaning="a run", usual=0.01, limit=0.04, source="", kl=0.1)
DRIFT = Range(meaning="a run", usual=0.01, limit=0.04, source="", kl=0.1, is_drift=True)


def level(mean: float, kl: float = 0.0) -> Level:
    return Level(
        mean_abs_diff=mean, low=mean, high=mean, median_abs_diff=mean, kl=kl,
        mult_prob_error=1.0, prob_diff=0.0, pearson=1.0, num_tokens=100,
        num_samples=10, least_sample_mean=mean,
    )  # fmt: skip


def finding(kind: FindingKind = "fact", cause: str = "unknown", **more: Any) -> Finding:
    values: dict[str, Any] = {"share": 0.0, "evidence": (), "where": {}, "view": None}
    values |= {"location": "", "num_tokens": 1, "indices": np.arange(1), **more}
    return Finding(kind=kind, cause=cause, **values)


PLACE = finding("place", p=0.001)
DESCRIBED = finding("place", p=None)
STALE = finding("fact", "stale_weights")
UPDATE = finding("fact", severity="update")
NOTE = finding("fact", severity="note")
LOW_PRECISION = finding("fact", "low_precision", severity="note")


@pytest.mark.parametrize(
    ("mean", "kl", "findings", "verdict"),
    [
        # Without a finding: both limits belong to the range.
        (0.01, 0.1, [], "healthy"),
        (0.011, 0.0, [], "noisy"),
        (0.04, 0.1, [], "noisy"),
        (0.041, 0.0, [], "suspicious"),
        (0.001, 0.11, [], "suspicious"),
        # What is no bug.
        (0.01, 0.0, [NOTE], "healthy"),
        (0.01, 0.0, [DESCRIBED], "noisy"),
        (0.01, 0.0, [LOW_PRECISION], "noisy"),
        (0.01, 0.0, [finding("level")], "healthy"),
        # A bug is at least suspicious, older versions alone are stale.
        (0.001, 0.0, [PLACE], "suspicious"),
        (0.001, 0.0, [STALE], "stale"),
        (0.5, 9.0, [STALE], "stale"),
        (0.001, 0.0, [STALE, finding("fact", "mixed_weights")], "stale"),
        (0.001, 0.0, [STALE, PLACE], "suspicious"),
        (0.001, 0.0, [finding("reversal", "stale_weights")], "suspicious"),
        (0.001, 0.0, [UPDATE], "suspicious"),
        (0.001, 0.0, [STALE, UPDATE], "suspicious"),
        # Broken: beyond a limit, and more than 0.3 explained, by all bugs together.
        (0.041, 0.0, [finding(share=0.3)], "suspicious"),
        (0.041, 0.0, [finding(share=0.31)], "broken"),
        (0.041, 0.0, [finding(share=0.2), finding(share=0.2)], "broken"),
        (0.001, 0.11, [finding(share=0.31)], "broken"),
        (0.04, 0.1, [finding(share=0.9)], "suspicious"),
        (0.5, 0.0, [finding("level", share=0.9)], "suspicious"),
        # Values that no model gives, in more than 0.3 of the tokens.
        (0.001, 0.0, [finding(where={"part_impossible": 0.3})], "suspicious"),
        (0.001, 0.0, [finding(where={"part_impossible": 0.31})], "broken"),
    ],
)
def test_a_level_and_its_findings_have_one_verdict(
    mean: float, kl: float, findings: list[Finding], verdict: Verdict
) -> None:
    assert find_verdict(level(mean, kl), USUAL, findings) == verdict


@pytest.mark.parametrize(
    ("mean", "kl", "factor", "verdict"),
    [
        (0.006, 0.0, 0.5, "noisy"),
        (0.021, 0.0, 0.5, "suspicious"),
        (0.001, 0.06, 0.5, "suspicious"),
        (0.02, 0.0, 2.0, "healthy"),
        (0.08, 0.2, 2.0, "noisy"),
    ],
)
def test_a_factor_moves_all_three_limits(
    mean: float, kl: float, factor: float, verdict: Verdict
) -> None:
    assert find_verdict(level(mean, kl), USUAL, [], factor=factor) == verdict


def test_where_updates_lie_between_the_scores_older_weights_are_no_bug() -> None:
    assert find_verdict(level(0.001), DRIFT, [STALE]) == "healthy"
    assert find_verdict(level(0.001), DRIFT, [STALE, PLACE]) == "suspicious"


@pytest.mark.parametrize(
    ("previous", "now", "strict", "held"),
    [
        (None, "healthy", "broken", "healthy"),
        ("suspicious", "broken", "broken", "broken"),
        ("suspicious", "healthy", "suspicious", "suspicious"),
        ("suspicious", "healthy", "broken", "suspicious"),
        ("suspicious", "healthy", "noisy", "healthy"),
        ("not_measurable", "healthy", "broken", "healthy"),
        ("broken", "not_measurable", "broken", "not_measurable"),
    ],
)
def test_a_verdict_holds_until_half_of_all_limits_is_met(
    previous: Verdict | None, now: Verdict, strict: Verdict, held: Verdict
) -> None:
    assert hold(previous, now, strict) == held


def test_verdicts_have_one_order() -> None:
    order: list[Verdict] = ["identical", "healthy", "noisy", "stale", "suspicious"]
    order += ["broken", "not_measurable"]
    for i, verdict in enumerate(order):
        for j, limit in enumerate(order):
            assert is_at_least(verdict, limit) == (i >= j or {i, j} == {0, 1})

"""A fixed part of the bench: each batch must keep the cause that it was given.

`python -m tests.faults.bench` has the rest, with rates in place of single answers.
"""

from __future__ import annotations

import numpy as np
import pytest

import rounddiag as rd
from tests.faults import arrays, fixed
from tests.faults.rows import Rows
from tests.faults.severity import ratio, severity_of
from tests.faults.truth import alike

EXPECTED: dict[str, str] = {}

CASES = {case.name: case for case in fixed.load()} if fixed.FILE.exists() else {}


def test_the_file_has_exactly_the_batches_below() -> None:
    assert sorted(CASES) == sorted(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_first_finding_names_the_cause(name: str) -> None:
    case = CASES[name]
    found = rd.diagnose(case.batch(), **case.arguments())
    if EXPECTED[name] == "healthy":
        assert found.verdict in ("healthy", "noisy")
        assert not [one for one in found if one.confidence >= 0.5]
    else:
        assert found[0].cause == EXPECTED[name]


def rows(rollout: list[float], old: list[float], mask: list[int]) -> Rows:
    """One row."""
    size = len(mask)
    return Rows(
        ids=[np.arange(size)],
        mask=[np.array(mask)],
        rollout=[np.array(rollout, np.float32)],
        old=[np.array(old, np.float32)],
        entropy=[np.zeros(size)],
        prompt=[np.array([1])],
        group=["a"],
        reward=[1.0],
    )


def test_a_ratio_counts_generated_tokens_that_changed() -> None:
    healthy = rows([-1.0, -1.0, -1.0, -9.0], [-1.1, -1.2, -1.3, 0.0], [1, 1, 1, 0])
    broken = rows([-1.0, -1.0, -1.0, -9.0], [-1.1, -1.6, -1.9, 5.0], [1, 1, 1, 0])
    # Tokens 1 and 2: mean 0.75 where 0.25 is healthy.
    assert ratio(healthy, broken) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize(
    ("value", "severity"),
    [
        (1.4, None),
        (2.0, "just_visible"),
        (4.0, None),
        (12.0, "clear"),
        (80.0, "gross"),
    ],
)
def test_severities_are_bands_of_the_ratio(value: float, severity: str | None) -> None:
    assert severity_of(value) == severity


def test_a_shift_inside_rounds_stays_in_its_round() -> None:
    healthy = rows([-1, -2, -3, 0, -5, -6], [-1, -2, -3, 0, -5, -6], [1, 1, 1, 0, 1, 1])
    found = arrays.shifted_rounds(healthy, np.random.default_rng(0), "gross")
    (values,) = found.rollout
    assert values.tolist() in ([-1, -1, -2, 0, -5, -5], [-2, -3, -3, 0, -6, -6])


def test_causes_are_alike_only_without_the_record_that_tells() -> None:
    none: frozenset[str] = frozenset()
    assert alike("stale_weights", "sync_broken", "stale_weights", none)
    assert not alike("stale_weights", "temperature", "stale_weights", none)
    assert alike("position_ids", "model_mismatch", "half_places", none)
    assert not alike(
        "position_ids", "model_mismatch", "half_places", frozenset({"places"})
    )

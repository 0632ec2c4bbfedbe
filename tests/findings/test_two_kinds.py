"""Whole groups, samples or rounds of two kinds, and what is equal before a place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rounddiag as rd
from rounddiag._typing import Array
from rounddiag.findings.two_kinds import find_two_kinds, split_units
from rounddiag.findings.view import View
from tests.findings.small import LENGTH, arrays, literal, made, rounds_of

ROW = np.arange(64)


def differing(where: Any, elsewhere: float, size: float = 0.2) -> dict[str, Any]:
    """Return samples that differ somewhere by noise of one size, else by another."""
    parts = arrays(64, noise=0)
    scale = np.where(where, size, elsewhere)
    drawn = np.random.default_rng(3).normal(0, 1, parts["mask"].shape)
    parts["old"] = np.minimum(parts["rollout"] + drawn * scale * parts["mask"], 0)
    return parts


@pytest.mark.parametrize(
    ("elsewhere", "words"), [(0.0, "are bitwise equal"), (1e-4, "agree to ")]
)
@pytest.mark.parametrize("num_groups", [4, 8])
def test_whole_groups_are_described_as_such(
    num_groups: int, elsewhere: float, words: str
) -> None:
    group = ROW // (64 // num_groups)
    parts = differing((group % 2 == 0)[:, None], elsewhere)
    diagnosis = rd.diagnose(made(parts, group_ids=[f"g{number}" for number in group]))
    assert diagnosis.verdict in ("suspicious", "broken")
    assert (
        f"{num_groups // 2} of {num_groups} groups differ by 0.1" in diagnosis.headline
    )
    assert f"the others {words}" in diagnosis.headline
    assert "all tokens" not in str(diagnosis)


def test_samples_and_rounds_of_two_kinds() -> None:
    batch = made(differing((ROW % 2 == 0)[:, None], 1e-4))
    kinds = find_two_kinds(View.from_batch(batch))
    assert kinds is not None
    assert (kinds.unit, kinds.differing.tolist()) == ("sample", [*range(0, 64, 2)])
    parts = arrays(64)
    diagnosis = rd.diagnose(made(differing(rounds_of(parts) % 2 == 1, 1e-4)))
    assert diagnosis.headline.startswith("Rounds 1, 3 differ by 0.1")
    assert diagnosis.onset is None
    # Of round 0 only, the last that differs is not the last round.
    diagnosis = rd.diagnose(made(differing(rounds_of(parts) == 0, 1e-4)))
    assert "round 0" in diagnosis.headline.lower()


def test_the_gap_by_hand() -> None:
    # Means 1e-4, 1e-4, 1e-4, 1e-1, 1e-1: all of the range is one gap, so p is 0.
    rows = [[-1.0, -1.0]] * 5
    shifted = [[-1 - size] * 2 for size in (1e-4, 1e-4, 1e-4, 0.1, 0.1)]
    view = View.from_batch(literal(shifted, rows))
    kinds = split_units(view, "sample", view.sample)
    assert kinds is not None
    assert kinds.differing.tolist() == [3, 4]
    assert kinds.mean == pytest.approx(0.1, rel=1e-4)
    assert kinds.most_elsewhere == pytest.approx(1e-4, rel=2e-2)
    # Even steps of a factor of 10: each gap is a quarter of the range, 4 (3/4)^3 > 1.
    shifted = [[-1 - 10.0**power] * 2 for power in range(-4, 1)]
    view = View.from_batch(literal(shifted, rows))
    assert split_units(view, "sample", view.sample) is None


def test_a_few_large_tokens_are_no_kind_of_sample() -> None:
    parts = arrays(64)
    parts["rollout"][[3, 20], 30], parts["old"][[3, 20], 30] = -8.0, -0.5
    assert find_two_kinds(View.from_batch(made(parts))) is None


def test_sound_batches_are_of_one_kind() -> None:
    views = [View.from_batch(made(arrays(32, seed))) for seed in range(40)]
    assert not any(map(find_two_kinds, views))


def test_all_tokens_are_affected_only_if_none_agrees() -> None:
    parts = arrays(noise=0)
    parts["old"] = parts["rollout"] - 0.3 * parts["mask"]
    whole = rd.diagnose(made(parts))
    parts["old"][:, ::3] = parts["rollout"][:, ::3]
    assert "all tokens are affected" in str(whole) or whole[0].kind == "reversal"
    assert "all tokens are affected" not in str(rd.diagnose(made(parts))).lower()


@pytest.mark.parametrize("first", [30, 41])
def test_what_is_equal_before_a_place_is_said(first: int) -> None:
    parts = arrays(64, noise=0)
    parts["mask"][:] = 1
    draws = np.random.default_rng(1).exponential(0.8, size=parts["mask"].shape)
    rollout: Array = -np.asarray(draws)
    parts["rollout"] = rollout
    parts["old"] = rollout.copy()
    late = np.arange(LENGTH) >= first
    drawn = np.random.default_rng(2).uniform(-0.15, 0.15, parts["mask"].shape)
    hit = np.random.default_rng(4).random(parts["mask"].shape) < 0.6
    parts["old"] = np.minimum(parts["rollout"] + drawn * hit * late, 0)
    text = rd.diagnose(made(parts)).headline
    assert f"from generated token {first} on; all tokens before generated token" in text
    assert "bitwise equal" in text
    parts["old"][5, 3] -= 1e-3
    assert "all tokens before" not in rd.diagnose(made(parts)).headline

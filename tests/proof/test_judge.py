"""The judge, on numbers worked out by hand: no model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rounddiag.proof.judge import (
    Sheet,
    base_opinion,
    correlate_changes,
    judge,
    reference_floor,
)
from rounddiag.proof.noise import fit_scale, scale_residuals

NUM_SAMPLES, SIZE = 5, 40


def make_sheet(fault: float = 0.0, seed: int = 0) -> tuple[Sheet, np.ndarray[Any, Any]]:
    """Return a sheet whose `old` has a fault in all tokens, and the fault's scores."""
    rng = np.random.default_rng(seed)
    number = NUM_SAMPLES * SIZE
    base = -rng.uniform(0.5, 3, number)
    noise = [0.005 * rng.standard_t(5, number) for _ in range(3)]
    moved = fault * rng.choice([-1, 1], number)
    sheet = Sheet(
        engines={"old": base + moved + noise[0], "rollout": base + noise[1]},
        base=base,
        rough=base + noise[2],
        spread=np.ones(number),
        sample=np.repeat(np.arange(NUM_SAMPLES), SIZE),
        round=np.tile(np.repeat([0, 1], SIZE // 2), NUM_SAMPLES),
    )
    return sheet, base + moved


def test_the_true_hypothesis_is_proved() -> None:
    sheet, scores = make_sheet(fault=0.2)
    floor = reference_floor(sheet)
    found = judge(sheet, "old", "true", scores, floor)
    assert found.is_proof(100)
    assert found.where == "all"
    assert found.floors == pytest.approx(1, abs=0.5)
    assert (found.num_samples, found.num_nearer) == (5, 5)


def test_it_is_not_proved_for_the_sound_engine() -> None:
    sheet, scores = make_sheet(fault=0.2)
    found = judge(sheet, "rollout", "true", scores, reference_floor(sheet))
    assert not found.reproduces
    assert found.evidence <= 0


def test_half_of_the_way_is_better_and_no_proof() -> None:
    sheet, scores = make_sheet(fault=0.2)
    half = (scores + sheet.base) / 2
    found = judge(sheet, "old", "half", half, reference_floor(sheet))
    assert found.evidence > np.log(20 * 100)
    assert found.share == pytest.approx(0.5, abs=0.05)
    assert not found.is_proof(100)


def test_a_hypothesis_may_hold_from_a_round_on() -> None:
    sheet, scores = make_sheet(fault=0.2)
    late = sheet.round >= 1
    old = np.where(late, sheet.engines["old"], sheet.engines["rollout"])
    engines = {"old": old, "rollout": sheet.engines["rollout"]}
    changed = replace(sheet, engines=engines)
    found = judge(changed, "old", "true", scores, reference_floor(changed))
    assert found.where == "from round 1 on"
    assert found.is_proof(100)


def test_a_hypothesis_may_hold_in_some_samples() -> None:
    sheet, scores = make_sheet(fault=0.2)
    some = sheet.sample < 3
    old = np.where(some, sheet.engines["old"], sheet.engines["rollout"])
    engines = {"old": old, "rollout": sheet.engines["rollout"]}
    changed = replace(sheet, engines=engines)
    found = judge(changed, "old", "true", scores, reference_floor(changed))
    assert found.where == "3 of 5 samples"
    assert found.is_proof(100)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_proved_of_noise(seed: int) -> None:
    sheet, _ = make_sheet(seed=seed)
    rng = np.random.default_rng(1000 + seed)
    wrong = sheet.base + 0.1 * rng.standard_normal(len(sheet))
    for engine in sheet.engines:
        found = judge(sheet, engine, "wrong", wrong, reference_floor(sheet))
        assert not found.reproduces
        assert base_opinion(sheet, engine, reference_floor(sheet)).floors < 2


def test_a_change_below_the_noise_has_no_power() -> None:
    sheet, _ = make_sheet()
    found = judge(sheet, "old", "same", sheet.base + 1e-6, reference_floor(sheet))
    assert not found.is_powered


def test_certain_tokens_do_not_lower_the_noise() -> None:
    sheet, _ = make_sheet()
    number = len(sheet)
    certain = np.full(number, 1e-4)
    double: dict[str, Any] = {
        "engines": {k: np.r_[v, np.zeros(number)] for k, v in sheet.engines.items()},
        "base": np.r_[sheet.base, np.zeros(number)],
        "rough": np.r_[sheet.rough, np.zeros(number)],
        "spread": np.r_[sheet.spread, certain],
        "sample": np.r_[sheet.sample, sheet.sample],
        "round": np.r_[sheet.round, sheet.round],
    }
    assert Sheet(**double).floor == pytest.approx(sheet.floor)


def test_residuals_are_on_the_scale_of_logits() -> None:
    assert scale_residuals(np.array([0.1]), np.array([0.5])).tolist() == [0.2]


def test_the_scale_of_values_that_are_not_finite_is_that_of_the_others() -> None:
    values = np.array([1.0, -1.0, np.nan, np.inf])
    assert fit_scale(values) == pytest.approx(1.0)


def test_changes_of_the_same_tokens_in_the_same_directioncorrelate_changes() -> None:
    still = np.array([-1.0, -1.0, -1.0, -1.0])
    sheet = Sheet(
        engines={"old": still + np.array([0.5, -0.5, 0.0, np.nan])},
        base=still,
        rough=still,
        spread=np.ones(4),
        sample=np.zeros(4, dtype=np.int64),
        round=np.zeros(4, dtype=np.int64),
    )
    for change, expected in (
        ([0.5, -0.5, 0.0, 9.0], 1.0),
        ([-0.1, 0.1, 0.0, 9.0], -1.0),
        ([0.5, 0.0, 0.5, 9.0], 0.5),
        ([0.0, 0.0, 0.0, 9.0], 0.0),
    ):
        assert correlate_changes(sheet, "old", still + change) == pytest.approx(
            expected
        )

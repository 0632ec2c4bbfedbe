"""The judge, on numbers worked out by hand: no model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rounddiag.proof.hypotheses import Hypothesis
from rounddiag.proof.judge import (
    Opinion,
    base_opinion,
    correlate_changes,
    judge,
    noise_floor,
)
from rounddiag.proof.scores import ScoreTable, fit_scale, scale_residuals
from rounddiag.proof.verdict import EngineResult

NUM_SAMPLES, SIZE = 5, 40


def make_table(
    fault: float = 0.0, seed: int = 0
) -> tuple[ScoreTable, np.ndarray[Any, Any]]:
    """Return a table whose `old` has a fault in all tokens, and the fault's scores."""
    rng = np.random.default_rng(seed)
    number = NUM_SAMPLES * SIZE
    base = -rng.uniform(0.5, 3, number)
    noise = [0.005 * rng.standard_t(5, number) for _ in range(3)]
    moved = fault * rng.choice([-1, 1], number)
    table = ScoreTable(
        engines={"old": base + moved + noise[0], "rollout": base + noise[1]},
        base=base,
        low_precision=base + noise[2],
        spread=np.ones(number),
        sample=np.repeat(np.arange(NUM_SAMPLES), SIZE),
        round=np.tile(np.repeat([0, 1], SIZE // 2), NUM_SAMPLES),
        at=np.arange(number),
    )
    return table, base + moved


def named(name: str, **traits: Any) -> Hypothesis:
    return Hypothesis(name=name, cause=name, says=name, **traits)


def test_the_true_hypothesis_is_proved() -> None:
    table, scores = make_table(fault=0.2)
    floor = noise_floor(table, "old")
    opinion = judge(table, "old", named("true"), scores, floor)
    assert opinion.is_proof(100)
    assert opinion.where == "all"
    assert opinion.residual_to_noise == pytest.approx(1, abs=0.5)
    assert (opinion.num_samples, opinion.num_nearer) == (5, 5)


def test_it_is_not_proved_for_the_sound_engine() -> None:
    table, scores = make_table(fault=0.2)
    opinion = judge(table, "rollout", named("true"), scores, noise_floor(table, "old"))
    assert not opinion.reproduces
    assert opinion.evidence <= 0


def test_half_of_the_way_is_better_and_no_proof() -> None:
    table, scores = make_table(fault=0.2)
    half = (scores + table.base) / 2
    opinion = judge(table, "old", named("half"), half, noise_floor(table, "old"))
    assert opinion.evidence > np.log(20 * 100)
    assert opinion.share == pytest.approx(0.5, abs=0.05)
    assert not opinion.is_proof(100)


@pytest.mark.parametrize(
    ("column", "low", "high", "where"),
    [("round", 1, 9, "from round 1 on"), ("sample", 0, 3, "3 of 5 samples")],
)
def test_a_hypothesis_may_hold_in_a_part(
    column: str, low: int, high: int, where: str
) -> None:
    table, scores = make_table(fault=0.2)
    at = getattr(table, column)
    is_part = (at >= low) & (at < high)
    old = np.where(is_part, table.engines["old"], table.engines["rollout"])
    changed = replace(table, engines={**table.engines, "old": old})
    opinion = judge(changed, "old", named("true"), scores, noise_floor(changed, "old"))
    assert opinion.where == where
    assert opinion.is_proof(100)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_proved_of_noise(seed: int) -> None:
    table, _ = make_table(seed=seed)
    rng = np.random.default_rng(1000 + seed)
    wrong = table.base + 0.1 * rng.standard_normal(len(table))
    for engine in table.engines:
        opinion = judge(table, engine, named("wrong"), wrong, noise_floor(table, "old"))
        assert not opinion.reproduces
        base = base_opinion(table, engine, noise_floor(table, engine))
        assert base.residual_to_noise < 2


def test_a_change_below_the_noise_has_no_power() -> None:
    table, _ = make_table()
    opinion = judge(
        table, "old", named("same"), table.base + 1e-6, noise_floor(table, "old")
    )
    assert not opinion.is_powered


def test_certain_tokens_do_not_lower_the_noise() -> None:
    table, _ = make_table()
    number = len(table)
    certain = np.full(number, 1e-4)
    double: dict[str, Any] = {
        "engines": {k: np.r_[v, np.zeros(number)] for k, v in table.engines.items()},
        "base": np.r_[table.base, np.zeros(number)],
        "low_precision": np.r_[table.low_precision, np.zeros(number)],
        "spread": np.r_[table.spread, certain],
        "sample": np.r_[table.sample, table.sample],
        "round": np.r_[table.round, table.round],
        "at": np.arange(2 * number),
    }
    assert ScoreTable(**double).floor == pytest.approx(table.floor)


def test_scales_of_rows_are_those_of_the_likelihood() -> None:
    """By scipy's own fit of Student's t, and by hand: 4 x^2 / (3 s^2 + x^2) is 1."""
    from scipy.stats import t as student

    rng = np.random.default_rng(0)
    rows = rng.standard_t(3, (4, 200)) * np.array([[1e-4], [0.1], [1.0], [30.0]])
    rows[2, :50] = np.nan
    expected = [
        student.fit(row[np.isfinite(row)], f0=3, floc=0, scale=np.nanstd(row))[2]
        for row in rows
    ]
    np.testing.assert_allclose(fit_scale(rows), expected, rtol=1e-3)
    assert fit_scale(np.array([0.0, 0.0, 0.0, 3.0]), 1e-3) == pytest.approx(1e-3)
    assert fit_scale(np.array([[2.0, -2.0]])).tolist() == pytest.approx([2.0])
    assert fit_scale(np.array([1.0, -1.0, np.nan, np.inf])) == pytest.approx(1.0)
    assert scale_residuals(np.array([0.1]), np.array([0.5])).tolist() == [0.2]
    assert fit_scale(np.array([[np.nan], [np.inf]]), 0.5).tolist() == [0.5, 0.5]


def test_changes_of_the_same_tokens_in_the_same_direction_correlate() -> None:
    still = np.array([-1.0, -1.0, -1.0, -1.0])
    table = ScoreTable(
        engines={"old": still + np.array([0.5, -0.5, 0.0, np.nan])},
        base=still,
        low_precision=still,
        spread=np.ones(4),
        sample=np.zeros(4, dtype=np.int64),
        round=np.zeros(4, dtype=np.int64),
        at=np.arange(4),
    )
    for change, expected in (
        ([0.5, -0.5, 0.0, 9.0], 1.0),
        ([-0.1, 0.1, 0.0, 9.0], -1.0),
        ([0.5, 0.0, 0.5, 9.0], 0.5),
        ([0.0, 0.0, 0.0, 9.0], 0.0),
    ):
        assert correlate_changes(table, "old", still + change) == pytest.approx(
            expected
        )


@pytest.mark.parametrize(
    ("engine", "kept", "is_proof"),
    [
        # 200 draws from nine tenths of the distribution: 0.9 ** 200 by chance.
        ("rollout", 0.9, True),
        # A tenth of a nat in all: nothing has to be excluded.
        ("rollout", 0.9995, False),
        # The trainer drew none of them, and calls none impossible.
        ("old", 0.9, False),
    ],
)
def test_a_truncation_needs_tokens_that_it_excludes(
    engine: str, kept: float, is_proof: bool
) -> None:
    table, _ = make_table()
    moved = table.base - np.log(kept)
    engines = {**table.engines, engine: moved + table.engines[engine] - table.base}
    changed = replace(table, engines=engines)
    floor = noise_floor(changed, engine)
    opinion = judge(changed, engine, named("top_p", excludes=True), moved, floor)
    assert opinion.is_powered is is_proof
    assert judge(changed, engine, named("shift"), moved, floor).is_powered is (
        kept == 0.9
    )


def test_a_trainer_that_truncates_calls_drawn_tokens_impossible() -> None:
    table, _ = make_table()
    gone = np.arange(len(table)) % 20 == 0
    moved = np.where(gone, -np.inf, table.base + 0.1)
    changed = replace(table, engines={**table.engines, "old": moved})
    opinion = judge(changed, "old", named("top_p", excludes=True), moved, 0.005)
    assert opinion.is_powered


def test_a_rival_that_reads_something_else_leaves_the_cause_open() -> None:
    def tried(cause: str, *scores: float) -> tuple[Hypothesis, Opinion]:
        opinion = Opinion(
            name=cause,
            engine="rollout",
            where="all",
            evidence=20.0,
            residual_to_noise=1.0,
            residual=0.1,
            before=1.0,
            noise=0.1,
            share=1.0,
            harmed=0.0,
            gain=10.0,
            num_tokens=9,
            num_samples=2,
            num_nearer=2,
            is_powered=True,
            scores=np.array(scores),
        )
        return named(cause), opinion

    best = tried("prompt_mismatch", -1.0, np.nan)
    for rival, is_clear in (
        (tried("rewritten_history", -1.0, np.nan), True),
        (tried("rewritten_history", -1.5, np.nan), False),
        (tried("prompt_mismatch", -1.5, np.nan), True),  # of the same cause
    ):
        result = EngineResult(
            engine="rollout",
            base=best[1],
            table=make_table()[0],
            num_hypotheses=2,
            chain=[best],
            last=[best, rival],
        )
        assert result.is_proved
        assert result.is_clear == is_clear

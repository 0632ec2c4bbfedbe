"""The level: its interval over groups, and what is usual for tokens as likely."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.findings import REFERENCE, Level, Range, View
from rounddiag.findings.reference import MIX, SHAPE, share_by_probability
from tests.findings.small import literal

# The real model of reference runs, 135 M parameters, bf16 against float32: mean |diff|
# by probability, and the shares that give its mean of 0.036 nat.
SHARES = (0.82, 0.04, 0.14)
PROBABILITIES = (0.3, 0.7, 0.97)


def real_model(num: int = 8, length: int = 400, factor: float = 1.0) -> rd.Batch:
    """Samples of tokens of three probabilities with the noise of the real pair."""
    rng = np.random.default_rng(3)
    code = rng.choice(3, size=(num, length), p=SHARES)
    rollout = np.log(np.array(PROBABILITIES))[code]
    # The mean of the size of a normal is sqrt(2 / pi) of its spread.
    spread = np.array(SHAPE)[code] * np.sqrt(np.pi / 2) * factor
    old = np.minimum(rollout + rng.normal(0, spread), 0)
    batch: rd.Batch = rd.Batch.from_padded(
        response_ids=torch.from_numpy(rng.integers(5, 999, code.shape)),
        response_mask=torch.ones(code.shape, dtype=torch.int64),
        rollout_log_probs=torch.from_numpy(rollout).float(),
        old_log_probs=torch.from_numpy(old).float(),
        meta={"sampling": {"dtype": "bfloat16"}},
    )
    return batch


def test_a_sound_batch_of_uncertain_tokens_is_healthy() -> None:
    diagnosis = rd.diagnose(real_model())
    assert diagnosis.level.mean_abs_diff == pytest.approx(0.036, abs=0.002)
    assert diagnosis.verdict == "healthy"
    # 0.02 / (0.2 * 0.043 + 0.2 * 0.018 + 0.6 * 0.002) = 1.493 times 0.0363.
    assert diagnosis.reference.usual == pytest.approx(0.0541, abs=0.001)
    # The published limit of 0.05 is below it.
    assert diagnosis.reference.limit == diagnosis.reference.usual
    assert "for tokens as likely as these, from a published mean" in diagnosis.text
    assert rd.diagnose(real_model(factor=1.3)).verdict == "healthy"
    assert rd.diagnose(real_model(factor=2)).verdict == "suspicious"


def test_a_batch_of_certain_tokens_has_lower_limits() -> None:
    usual = REFERENCE["dense"].for_tokens(np.log([0.95, 0.99, 0.999]))
    # 0.02 * 0.002 / 0.0134 and 0.05 * 0.002 / 0.0134.
    assert usual.usual == pytest.approx(0.002985, abs=1e-6)
    assert usual.limit == pytest.approx(0.007463, abs=1e-6)


def test_a_published_mean_is_that_of_the_assumed_mix() -> None:
    for name, reference in REFERENCE.items():
        if reference.by_probability is None:
            assert name == "update"
            continue
        assert np.dot(MIX, reference.by_probability) == pytest.approx(1)
        assert reference.by_probability[0] / reference.by_probability[
            2
        ] == pytest.approx(21.5)
    log_probs = np.log([0.2, 0.5, 0.6, 0.95])
    assert share_by_probability(log_probs).tolist() == [0.5, 0.25, 0.25]


def test_a_range_of_ones_own_holds_as_it_is() -> None:
    mine = Range(
        meaning="mine", usual=0.03, limit=0.05,
        source="a run of mine",
    )  # fmt: skip
    REFERENCE["mine"] = mine
    try:
        diagnosis = rd.diagnose(real_model(), kind="mine")
    finally:
        del REFERENCE["mine"]
    assert diagnosis.reference is mine
    assert diagnosis.verdict == "noisy"  # 0.036 nat


def test_a_healthy_batch_gives_the_usual_by_probability() -> None:
    healthy = real_model(factor=3)
    assert rd.diagnose(real_model(factor=3)).verdict == "suspicious"
    diagnosis = rd.diagnose(real_model(factor=3), healthy=healthy)
    assert diagnosis.verdict == "healthy"
    steps = diagnosis.reference.by_probability
    assert steps is not None
    # 1, 0.42 and 0.047 times 0.043 nat at a mean of 0.0363.
    assert steps == pytest.approx((1.185, 0.496, 0.0551), rel=0.15)


def test_the_interval_is_clustered_by_group() -> None:
    # Two samples a group; groups differ by 1, 2, 3; samples of a group are equal.
    rollout = [[-5.0] * 4] * 6
    old = [[-5.0 - size] * 4 for size in (1, 1, 2, 2, 3, 3)]
    batch = literal(old, rollout, group_ids=("a", "a", "b", "b", "c", "c"))
    level = Level.from_view(View.from_batch(batch))
    # Three means 1, 2, 3: error 1 / sqrt(3), Student's t of 2 degrees 4.3027.
    assert level.mean_abs_diff == 2.0
    assert level.high == pytest.approx(2 + 4.3027 / np.sqrt(3), abs=1e-4)
    alone = replace(batch, group_ids=None)
    # Six samples: sqrt(4 * 6 / 5) / 6, Student's t of 5 degrees 2.5706.
    assert Level.from_view(View.from_batch(alone)).high == pytest.approx(
        2 + 2.5706 * np.sqrt(4 * 6 / 5) / 6, abs=1e-4
    )


@pytest.mark.parametrize(("num_samples", "is_known"), [(4, False), (5, True)])
def test_five_samples_have_an_interval(num_samples: int, is_known: bool) -> None:
    rollout = [[-5.0] * 4] * num_samples
    old = [[-5.0 - size / 8] * 4 for size in range(num_samples)]
    level = Level.from_view(View.from_batch(literal(old, rollout)))
    assert np.isfinite([level.low, level.high]).tolist() == [is_known] * 2


def test_a_log_prob_above_0_has_a_probability_of_1() -> None:
    old, rollout = [[-1.0, 0.5]], [[0.5, -1.0]]
    level = Level.from_view(View.from_batch(literal(old, rollout)))
    assert level.prob_diff == pytest.approx(1 - np.exp(-1))
    assert level.pearson == pytest.approx(-1)


def test_the_interval_covers_the_mean() -> None:
    rng = np.random.default_rng(5)
    num_groups, covered = 4, 0
    for _ in range(200):
        size = np.exp(rng.normal(0, 0.35, num_groups) - 0.35**2 / 2)
        noise = rng.normal(size=(num_groups * 4, 60)) * np.repeat(size, 4)[:, None]
        rollout = np.full(noise.shape, -8.0)
        groups = tuple(f"task {i}" for i in np.repeat(np.arange(num_groups), 4))
        batch = literal((rollout + noise).tolist(), rollout.tolist(), group_ids=groups)
        level = Level.from_view(View.from_batch(batch))
        covered += level.low <= np.sqrt(2 / np.pi) <= level.high
    # 200 draws at 95 %: 182 or more with probability 0.99.
    assert covered >= 182

"""Temperature, truncation, penalties and grids, from real distributions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.findings import View
from rounddiag.findings.detectors.exact_values import find_grid
from rounddiag.findings.detectors.penalty import seen_before
from tests.findings.small import Array, made

SAMPLES, LENGTH, VOCABULARY = 24, 60, 40


def log_softmax(logits: Array) -> Array:
    top = logits.max(-1, keepdims=True)
    total = np.log(np.exp(logits - top).sum(-1, keepdims=True))
    log_probs: Array = logits - top - total
    return log_probs


def drawn(sampler: Array, trainer: Array, seed: int) -> rd.Batch:
    """Draw tokens from log-probs [samples, length, vocabulary]; keep both engines'."""
    rng = np.random.default_rng(seed)
    chances = np.exp(sampler).cumsum(-1)
    draws = rng.random((*sampler.shape[:2], 1)) * chances[..., -1:]
    ids = (draws > chances).sum(-1)
    at = ids[..., None]
    entropy = -(np.exp(trainer) * trainer).sum(-1)
    parts = {
        "rollout": np.take_along_axis(sampler, at, -1)[..., 0],
        "old": np.take_along_axis(trainer, at, -1)[..., 0],
        "ids": ids + 10,
        "mask": np.ones(ids.shape, dtype=np.int64),
    }
    return made(parts, entropy=torch.from_numpy(entropy).float())


def random_logits(seed: int) -> Array:
    rng = np.random.default_rng(seed)
    heat = rng.uniform(0.5, 5, (SAMPLES, LENGTH, 1))
    logits: Array = rng.normal(0, 1, (SAMPLES, LENGTH, VOCABULARY)) * heat
    return logits


def _noisy(logits: Array, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    noisy: Array = logits + rng.normal(0, 0.01, logits.shape)
    return noisy


@pytest.mark.parametrize("value", [0.7, 0.95, 1.2])
def test_the_fitted_temperature_holds_the_true_one(value: float) -> None:
    logits = random_logits(0)
    batch = drawn(log_softmax(_noisy(logits, 1) / value), log_softmax(logits), 2)
    first = rd.diagnose(batch)[0]
    assert first.cause == "temperature"
    fitted = first.evidence[0]
    assert fitted.name == "temperature"
    assert fitted.value == pytest.approx(value, rel=0.05)
    assert first.share > 0.7


@pytest.mark.parametrize("value", [0.5, 0.8, 1.25, 2.0])
def test_without_entropy_the_interval_holds_the_temperature(value: float) -> None:
    logits = random_logits(0)
    batch = drawn(log_softmax(_noisy(logits, 1) / value), log_softmax(logits), 2)
    first = rd.diagnose(replace(batch, entropy=None))[0]
    assert first.cause == "temperature"
    fitted = first.evidence[0]
    assert fitted.low is not None
    assert fitted.high is not None
    assert fitted.low < value < fitted.high
    # What is left is little more than the noise that was added.
    assert first.evidence[3].value < 0.2


def test_other_weights_are_no_temperature() -> None:
    logits = random_logits(0)
    rng = np.random.default_rng(3)
    other = logits + rng.normal(0, 0.3, logits.shape)
    batch = drawn(log_softmax(other), log_softmax(logits), 2)
    assert "temperature" not in [finding.cause for finding in rd.diagnose(batch)]


def test_top_p_leaves_old_below_rollout_by_the_mass_that_was_cut() -> None:
    trainer = log_softmax(random_logits(0))
    order = np.argsort(-trainer, -1)
    ranked = np.take_along_axis(trainer, order, -1)
    before = np.exp(ranked).cumsum(-1) - np.exp(ranked)
    cut = np.where(before < 0.9, ranked, -np.inf)
    log_mass = np.log(np.exp(cut).sum(-1, keepdims=True))
    sampler = np.full_like(trainer, -np.inf)
    np.put_along_axis(sampler, order, cut - log_mass, -1)
    with np.errstate(invalid="ignore"):
        batch = drawn(sampler, trainer, 2)
    first = rd.diagnose(batch)[0]
    assert first.cause == "truncated_sampling"
    # Each cut keeps at least 90 % of the mass, and not all of it.
    assert 0.9 < first.evidence[0].value < 0.99


def test_a_repetition_penalty_shows_at_ids_seen_before() -> None:
    rng = np.random.default_rng(5)
    size, length = 200, 40
    logits = rng.normal(0, 2, (SAMPLES, length, size))
    logits[..., :20] += 3  # common ids come again
    plain = log_softmax(logits)
    ids = np.zeros((SAMPLES, length), dtype=np.int64)
    rollout, old = np.zeros(ids.shape), np.zeros(ids.shape)
    for i in range(SAMPLES):
        for t in range(length):
            values = logits[i, t] + rng.normal(0, 0.01, size)
            seen = np.unique(ids[i, :t])
            values[seen] = np.where(
                values[seen] > 0, values[seen] / 1.3, values[seen] * 1.3
            )
            sampler = log_softmax(values)
            ids[i, t] = rng.choice(size, p=np.exp(sampler))
            rollout[i, t], old[i, t] = sampler[ids[i, t]], plain[i, t, ids[i, t]]
    parts = {"rollout": rollout, "old": old, "ids": ids, "mask": np.ones_like(ids)}
    assert rd.diagnose(made(parts))[0].cause == "logit_processor"


def test_ids_seen_before_count_in_their_own_sample() -> None:
    values = np.full((2, 4), -1.0)
    parts = {
        "rollout": values,
        "old": values,
        "ids": np.array([[5, 6, 5, 5], [6, 7, 8, 6]]),
        "mask": np.ones((2, 4), dtype=np.int64),
    }
    view = View.from_batch(made(parts))
    assert seen_before(view).tolist() == [False, False, True, True] + [False] * 3 + [
        True
    ]


def test_the_grid_of_bfloat16_and_of_a_step() -> None:
    values = -np.random.default_rng(0).exponential(1, 200)
    assert find_grid(values) is None
    steps = np.round(values * 8) / 8
    assert find_grid(steps) == ("multiples of 0.125", 0.125)
    bits = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    grid = find_grid(bits.view(np.float32).astype(float))
    assert grid is not None
    assert grid[0] == "bfloat16"

"""Two faults at once: each must be named although the other one hides it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.checks.fills import FILLS
from tests.findings.small import LENGTH, Array, arrays, made, rounds_of, shaken
from tests.findings.test_sampling_causes import (
    SAMPLES,
    drawn,
    log_softmax,
    random_logits,
)

TEMPERATURE = 0.5


def _tempered() -> rd.Batch:
    values = random_logits(0)
    return drawn(log_softmax(values / TEMPERATURE), log_softmax(values), 2)


def _with_rollout(batch: rd.Batch, values: Array) -> rd.Batch:
    parts = {
        "rollout": values,
        "old": batch.log_probs("old").numpy().reshape(values.shape),
        "ids": batch.require_ids().numpy().reshape(values.shape),
        "mask": np.ones(values.shape, dtype=np.int64),
    }
    assert batch.entropy is not None
    return made(parts, entropy=batch.entropy.reshape(values.shape))


def test_a_temperature_is_fitted_on_the_rows_that_are_not_shifted() -> None:
    batch = _tempered()
    rollout = batch.log_probs("rollout").numpy().reshape(SAMPLES, -1).copy()
    rollout[:7, 1:] = rollout[:7, :-1].copy()
    by_cause = {
        finding.cause: finding for finding in rd.diagnose(_with_rollout(batch, rollout))
    }
    assert {"temperature", "shifted_log_probs"} <= set(by_cause)
    assert by_cause["shifted_log_probs"].samples.tolist() == list(range(7))
    alone = rd.diagnose(batch)[0].evidence[0].value
    assert by_cause["temperature"].evidence[0].value == pytest.approx(alone, rel=0.1)


def test_a_temperature_below_a_bad_block_is_taken_out_of_all_tokens() -> None:
    batch = _tempered()
    rollout = batch.log_probs("rollout").numpy().reshape(SAMPLES, -1).copy()
    rng = np.random.default_rng(4)
    noise = rng.normal(0, 3.0, rollout[:14].shape) * np.minimum(-rollout[:14], 1)
    rollout[:14] = np.minimum(rollout[:14] + noise, 0)
    diagnosis = rd.diagnose(_with_rollout(batch, rollout))
    by_cause = {finding.cause: finding for finding in diagnosis}
    block = next(finding for finding in diagnosis if finding.cause != "temperature")
    assert block.samples.tolist() == list(range(14))
    assert set(range(14)) <= set(by_cause["temperature"].samples.tolist())


def test_a_pack_shows_below_a_temperature_without_entropy() -> None:
    batch = _tempered()
    assert [finding.cause for finding in rd.diagnose(replace(batch, entropy=None))] == [
        "temperature"
    ]
    rollout = batch.log_probs("rollout").numpy().reshape(SAMPLES, -1).copy()
    rng = np.random.default_rng(4)
    noise = rng.normal(0, 1.0, rollout.shape) * np.minimum(-rollout, 1)
    leaks = np.arange(SAMPLES) % 4 != 0
    rollout[leaks] = np.minimum(rollout + noise, 0)[leaks]
    both = replace(_with_rollout(batch, rollout), entropy=None)
    by_cause = {finding.cause: finding for finding in rd.diagnose(both)}
    assert "temperature" in by_cause
    assert "packing_leak" in map(str, by_cause["unknown"].candidates)
    assert "in all samples but every 4th" in by_cause["unknown"].location


def test_a_rank_stands_out_of_a_batch_that_is_off_everywhere() -> None:
    parts = arrays()
    rank = np.arange(32) // 8
    shaken(parts, parts["mask"] > 0, 0.4)
    shaken(parts, (rank == 2)[:, None] & (parts["mask"] > 0), 1.2, seed=2)
    diagnosis = rd.diagnose(made(parts, sample_columns={"rank": rank}))
    worker = next(finding for finding in diagnosis if finding.kind == "place")
    assert worker.where["place"].text == "on rank 2"
    assert "bad_worker" in map(str, worker.candidates)


@pytest.mark.parametrize("is_one_sided", [False, True])
def test_tails_of_zeros_are_fills_unless_all_that_is_far_is_lower(
    is_one_sided: bool,
) -> None:
    """Answers that a grammar of vLLM forces end with such tails: see `test_grammar`."""
    parts = arrays()
    rng = np.random.default_rng(3)
    sure = (parts["mask"] > 0) & (rng.random(parts["mask"].shape) < 0.5)
    parts["rollout"][sure] = rng.choice([0.0, 1.0], sure.sum())
    parts["rollout"][sure] *= -rng.uniform(1e-4, 1e-2, sure.sum())
    parts["old"][sure] = -1e-3
    # One engine lost the context: of what the other is sure of, it is no longer.
    lost = sure & (rounds_of(parts) >= 1) & (rng.random(sure.shape) < 0.05)
    parts["old"][lost] = -rng.exponential(2.0, lost.sum())
    if not is_one_sided:  # and of what the other is not, it is now and then
        parts["rollout"][~sure & (rng.random(sure.shape) < 0.01)] -= 2.0
    filled = [2, 9, 17, 25, 30]
    parts["rollout"][filled, -16:] = 0.0
    parts["old"][filled, -1] = -np.arange(2, 7)
    result = FILLS.check(made(parts))
    if is_one_sided:
        assert result.status == "not testable"
        return
    assert result.samples == tuple(filled)
    assert result.tokens is not None
    assert np.bincount(result.tokens // LENGTH)[filled].min() >= 16


def test_rows_whose_new_owner_is_short_belong_to_the_swap() -> None:
    parts = arrays(12)
    parts["rollout"][[3, 8]] = parts["rollout"][[8, 3]]
    # Row 5 has the values of a row of 20 tokens, and its own are nowhere.
    parts["rollout"][5] = np.roll(parts["rollout"][0], 7)
    parts["rollout"][5, 20:] = 0.0
    findings = rd.diagnose(made(parts))
    assert [finding.cause for finding in findings] == ["swapped_rows"]
    assert findings[0].samples.tolist() == [3, 5, 8]


@pytest.mark.parametrize("seed", range(3))
def test_zeros_of_a_mask_that_is_too_wide_are_no_second_cause(seed: int) -> None:
    """Observations have 0 by the sampler; half of them begin with one id."""
    rng, parts = np.random.default_rng(seed), arrays(seed=seed)
    gaps = parts["mask"] == 0
    parts["mask"][:] = 1
    gaps[:, -3:] = True  # what stands after the last round as well
    parts["rollout"][gaps] = 0
    parts["old"][gaps] = -rng.exponential(2, int(gaps.sum())) - 0.5
    for start in range(20, LENGTH, 23):
        parts["ids"][rng.random(32) > 0.4, start] = 5
    causes = {finding.cause for finding in rd.diagnose(made(parts))}
    assert "mask_too_wide" in causes
    assert "filled_log_probs" not in causes

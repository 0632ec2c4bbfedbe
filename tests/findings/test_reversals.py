"""Reversals that one or two numbers undo: a constant, a moved mask."""

from __future__ import annotations

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.findings import View
from rounddiag.findings.noise import fitting_half
from tests.findings.small import ROUNDS, TOKENS, Array, arrays, made


def values(diagnosis: rd.findings.Diagnosis) -> dict[str, float]:
    """The numbers of the first finding."""
    return {one.name: one.value for one in diagnosis[0].evidence}


def test_a_constant_of_all_tokens_is_undone() -> None:
    parts = arrays(noise=0.005)
    parts["rollout"] -= 0.3 * parts["mask"]
    found = rd.diagnose(made(parts))
    assert [(one.kind, one.cause) for one in found] == [("reversal", "constant_bias")]
    assert values(found)["constant"] == pytest.approx(0.3, abs=1e-3)
    assert found[0].shown.startswith("Undone with −0.3 nat added to `old`, 0.3 nat")
    assert "on which the constant was not fitted" in found[0].shown


def test_a_constant_of_one_rank_is_undone_there() -> None:
    parts = arrays(noise=0.005)
    rank = np.arange(32) % 8
    parts["old"][rank == 3] -= 0.2 * parts["mask"][rank == 3]
    (found,) = rd.diagnose(made(parts, sample_columns={"rank": rank}))
    assert (found.kind, found.cause) == ("reversal", "constant_bias")
    assert "on rank 3" in found.location
    assert found.samples.tolist() == [3, 11, 19, 27]
    assert found.evidence[0].value == pytest.approx(-0.2, abs=1e-3)
    assert found.shown.endswith("the noise of the tokens that it leaves as they are.")


@pytest.mark.parametrize("seed", range(5))
def test_what_spreads_as_far_as_it_is_moved_is_no_constant(seed: int) -> None:
    # Old is below rollout by 0.1 on average, and by 0 to 0.2: no constant does that.
    parts = arrays(seed=seed)
    rng = np.random.default_rng(seed)
    parts["old"] -= rng.uniform(0, 0.2, parts["old"].shape) * parts["mask"]
    assert "constant_bias" not in [one.cause for one in rd.diagnose(made(parts))]


GAP = 12  # tokens of an observation
STEP = TOKENS + GAP


def moved(by: list[int]) -> dict[str, Array]:
    """Sound samples whose mask is moved by so many tokens in each round."""
    rng = np.random.default_rng(7)
    place = np.arange(ROUNDS * STEP - GAP) + np.zeros((32, 1), dtype=int)
    written = place % STEP < TOKENS
    rollout: Array = -rng.exponential(0.8, place.shape) * written
    old = rollout + rng.normal(0, 0.01, place.shape) * np.minimum(-rollout, 1)
    # What was not generated has no log-prob by the sampler, and one by the trainer.
    old = np.where(written, np.minimum(old, 0), -rng.exponential(2.0, place.shape) - 1)
    starts = np.arange(ROUNDS) * STEP + by
    since = place[..., None] - starts
    mask = np.sum((since >= 0) & (since < TOKENS), axis=-1)
    ids: Array = np.where(written, rng.integers(100, 150, place.shape), place % STEP)
    return {"rollout": rollout, "old": old, "ids": ids, "mask": mask}


@pytest.mark.parametrize(
    ("by", "offset", "growth"),
    [([-1, -1, -1, -1], -1, 0), ([-2, -2, -2, -2], -2, 0), ([0, -1, -2, -3], 0, -1)],
)
def test_a_moved_mask_is_moved_back(by: list[int], offset: int, growth: int) -> None:
    found = rd.diagnose(made(moved(by)))
    assert [(one.kind, one.cause) for one in found] == [("reversal", "mask_offset")]
    numbers = values(found)
    assert numbers["offset"] == -offset
    assert numbers["growth with each round"] == -growth
    # The tokens that the mask has wrongly: before each round but the first.
    tokens = found[0].tokens()
    assert len(tokens) == 32 * sum(-one for one in by[1:])
    assert set(tokens["rollout_log_prob"]) == {0.0}


def test_a_mask_that_is_wide_at_the_start_alone_is_not_moved() -> None:
    parts = moved([-2, -2, -2, -2])
    for index in range(ROUNDS):  # the ends are in the mask as well
        stop = index * STEP + TOKENS
        parts["mask"][:, stop - 2 : stop] = 1
    assert [one.cause for one in rd.diagnose(made(parts))] == ["mask_too_wide"]


def test_one_half_is_fitted_and_the_other_judged() -> None:
    batch = made(arrays(12))
    view = View.from_batch(batch)
    everything = np.ones(len(view), dtype=bool)
    assert set(view.sample[fitting_half(view, everything)]) == {0, 2, 4, 6, 8, 10}
    few = np.isin(view.sample, [1, 2, 3])  # fewer than ten samples: by rounds
    assert set(view.round[fitting_half(view, few)]) == {0, 2}
    one = few & (view.round == 1)
    assert set(view.sample[fitting_half(view, one) & one]) == {1, 3}

"""Reversals that one or two numbers undo: a constant, a moved mask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.findings import View
from rounddiag.findings.detectors.bias import undo_bias
from rounddiag.findings.detectors.shifts import shifted_log_probs
from rounddiag.findings.explanation import _best
from rounddiag.findings.noise import Noise, fitting_half
from rounddiag.findings.registry import DETECTORS
from tests.findings.small import (
    END,
    ROUNDS,
    TOKENS,
    Array,
    arrays,
    literal,
    made,
    shaken,
)


def values(diagnosis: rd.findings.Diagnosis) -> dict[str, float]:
    """The numbers of the first finding."""
    return {measure.name: measure.value for measure in diagnosis[0].evidence}


def test_a_constant_of_all_tokens_is_undone() -> None:
    parts = arrays(noise=0.005)
    parts["rollout"] -= 0.3 * parts["mask"]
    diagnosis = rd.diagnose(made(parts))
    assert [(finding.kind, finding.cause) for finding in diagnosis] == [
        ("reversal", "constant_bias")
    ]
    assert values(diagnosis)["constant"] == pytest.approx(0.3, abs=1e-3)
    assert diagnosis[0].shown.startswith("Undone with −0.3 nat added to `old`, 0.3 nat")
    assert "on which the constant was not fitted" in diagnosis[0].shown


def test_a_constant_of_one_rank_is_undone_there() -> None:
    parts = arrays(noise=0.005)
    rank = np.arange(32) % 8
    parts["old"][rank == 3] -= 0.2 * parts["mask"][rank == 3]
    (finding,) = rd.diagnose(made(parts, sample_columns={"rank": rank}))
    assert (finding.kind, finding.cause) == ("reversal", "constant_bias")
    assert "on rank 3" in finding.location
    assert finding.samples.tolist() == [3, 11, 19, 27]
    assert finding.evidence[0].value == pytest.approx(-0.2, abs=1e-3)
    assert finding.shown.endswith("the noise of the tokens that it does not change.")


@pytest.mark.parametrize("seed", range(5))
def test_what_spreads_as_far_as_it_is_moved_is_no_constant(seed: int) -> None:
    # Old is below rollout by 0.1 on average, and by 0 to 0.2: no constant does that.
    parts = arrays(seed=seed)
    rng = np.random.default_rng(seed)
    parts["old"] -= rng.uniform(0, 0.2, parts["old"].shape) * parts["mask"]
    assert "constant_bias" not in [
        finding.cause for finding in rd.diagnose(made(parts))
    ]


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
    diagnosis = rd.diagnose(made(moved(by)))
    assert [(finding.kind, finding.cause) for finding in diagnosis] == [
        ("reversal", "mask_offset")
    ]
    numbers = values(diagnosis)
    assert numbers["offset"] == -offset
    assert numbers["growth with each round"] == -growth
    # The tokens that the mask has wrongly: before each round but the first.
    tokens = diagnosis[0].tokens()
    assert len(tokens) == 32 * sum(-shift for shift in by[1:])
    assert set(tokens["rollout_log_prob"]) == {0.0}


def test_a_mask_that_is_wide_at_the_start_alone_is_not_moved() -> None:
    parts = moved([-2, -2, -2, -2])
    for index in range(ROUNDS):  # the ends are in the mask as well
        stop = index * STEP + TOKENS
        parts["mask"][:, stop - 2 : stop] = 1
    assert [finding.cause for finding in rd.diagnose(made(parts))] == ["mask_too_wide"]


def test_one_half_is_fitted_and_the_other_judged() -> None:
    batch = made(arrays(12))
    view = View.from_batch(batch)
    everything = np.ones(len(view), dtype=bool)
    assert set(view.sample[fitting_half(view, everything)]) == {0, 2, 4, 6, 8, 10}
    few = np.isin(view.sample, [1, 2, 3])  # fewer than ten samples: by rounds
    assert set(view.round[fitting_half(view, few)]) == {0, 2}
    subset = few & (view.round == 1)
    assert set(view.sample[fitting_half(view, subset) & subset]) == {1, 3}


def test_one_token_id_of_equal_texts_shows_no_constant() -> None:
    parts = arrays(noise=0.002)
    ends = parts["ids"] == END
    parts["old"][ends] -= 0.3
    view = View.from_batch(made(parts))
    assert undo_bias(view, view.token_id == END) is None
    # Nor does it show missing mass, which other tokens would lack as well.
    diagnosis = rd.diagnose(made(parts))
    assert [(finding.kind, finding.cause) for finding in diagnosis] == [
        ("place", "unknown")
    ]


def test_a_lag_that_a_single_token_fits_is_none() -> None:
    # The sixth value of `old` is nearer to the next of `rollout`, and any lag fits the
    # certain ones after it.
    sound = [-1.0, -0.5, -2.0, -0.7, -1.5, -1.52, -0.009, -0.002, -0.004, -0.001]
    sound += [-0.001, -0.007, -0.012, -0.007, -0.002, -0.001]
    rollout = [*sound[:5], -11.39, -0.056, *sound[7:]]
    other = [-1.2, *sound[1:]]
    rows = [rollout, *[other] * 3, *[sound] * 36]
    view = View.from_batch(literal([sound] * 40, rows))
    assert shifted_log_probs(view) == []


def test_tokens_of_a_place_are_no_noise() -> None:
    parts = arrays(noise=0.01)
    far = np.arange(32) % 4 == 0
    shaken(parts, far[:, None] & (parts["mask"] > 0), 2.0)
    batch = made(parts, sample_columns={"rank": np.arange(32) % 4})
    view = View.from_batch(batch)
    noise = Noise(view=view, unchanged=view.sample != 1)
    is_far = far[view.sample]
    assert not noise.sound[is_far].any()
    assert noise.sound.sum() == (~is_far & (view.sample != 1)).sum()


def test_a_formula_is_not_read_off_the_rest_of_a_few_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def temperature(view: View) -> None:
        asked.append(int((view.num_per_sample > 0).sum()))

    detector = replace(DETECTORS["temperature"], detect=temperature)
    monkeypatch.setitem(DETECTORS, "temperature", detector)
    parts = arrays(12)
    values = parts["rollout"][:, : TOKENS - 1].copy()
    for rows, expected in ((slice(0, 5), [7]), (slice(0, 7), [])):
        parts["rollout"][:, : TOKENS - 1] = values
        for k in range(ROUNDS):
            begin = k * (TOKENS + 3)
            part = parts["old"][rows, begin : begin + TOKENS - 1]
            parts["rollout"][rows, begin + 1 : begin + TOKENS] = part
        asked.clear()
        assert rd.diagnose(made(parts))[0].cause == "shifted_log_probs"
        assert asked == expected


@pytest.mark.parametrize("known", [set(), {"swapped_rows"}])
def test_what_is_left_of_swapped_rows_is_no_lag(known: set[str]) -> None:
    parts = arrays()
    parts["rollout"][:6, 1:TOKENS] = parts["rollout"][:6, : TOKENS - 1]
    view = View.from_batch(made(parts))
    best = _best(view, known, formulas=False, only_facts=False)
    assert (best is None) == bool(known)


@pytest.mark.parametrize(
    ("size", "found"), [(0.0, ("reversal", "retokenised")), (0.3, ("place", "unknown"))]
)
def test_other_ids_are_named_only_if_a_lag_leaves_noise(
    size: float, found: tuple[str, str]
) -> None:
    # From token 8 of each round to its end. What the other context adds is undone by no
    # lag: 0.7 nat become 0.2, where the noise is 0.005.
    parts = arrays()
    rng = np.random.default_rng(0)
    for k in range(ROUNDS):
        begin, stop = k * (TOKENS + 3) + 8, k * (TOKENS + 3) + TOKENS
        late = parts["rollout"][:12, begin : stop - 1].copy()
        parts["rollout"][:12, begin + 1 : stop] = late
        added = np.abs(rng.normal(0, size, (12, stop - begin)))
        parts["old"][:12, begin:stop] -= added
    (only,) = rd.diagnose(made(parts))
    assert (only.kind, only.cause) == found
    assert only.samples.tolist() == list(range(12))
    if only.kind == "place":
        assert "retokenised" in map(str, only.candidates)

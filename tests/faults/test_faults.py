"""A fixed part of the bench: what is claimed is true, and the truth is not left out.

`python -m tests.faults.bench` has the rest, with rates in place of single answers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import rounddiag as rd
from rounddiag.findings.causes import FORMULAS
from tests.faults import arrays, fixed
from tests.faults.bench import EXACT, Outcome, run
from tests.faults.cases import Case
from tests.faults.rows import Rows
from tests.faults.severity import ratio, severity_of
from tests.faults.truth import alike

EXPECTED = {
    "dense-test-0/bad_worker.clear.0": "bad_worker",
    "dense-tune-0/bad_worker.clear.1": "bad_worker",
    "moe-tune-0/batch_shape.clear.0": "batch_shape",
    "moe-tune-0/batch_shape.clear.1": "batch_shape",
    "vision-test-0/begins_twice.clear.1": "prompt_mismatch",
    "moe-tune-0/begins_twice.just_visible.0": "prompt_mismatch",
    "moe-tune-0/bfloat16_head.clear.0": "low_precision",
    "moe-test-0/bfloat16_head.clear.1": "low_precision",
    "vision-tune-0/blank_pictures.clear.0": "dropped_image",
    "vision-tune-0/blank_pictures.clear.1": "dropped_image",
    "moe-tune-0/coarse_body.clear.1": "low_precision",
    "moe-test-0/coarse_body.clear.1": "low_precision",
    "dense-tune-0/coarse_values.gross.0": "low_precision",
    "moe-tune-0/coarse_values.gross.1": "low_precision",
    "vision-tune-0/copied_rows.gross.1": "padding_rows",
    "dense-test-0/copied_rows.clear.0": "padding_rows",
    "dense-test-0/decode_path.clear.1": "decode_path",
    "moe-test-0/decode_path.clear.1": "decode_path",
    "dense-test-0/drawn_tempered.clear.1": "temperature",
    "dense-tune-0/empty_rows.gross.0": "padding_rows",
    "vision-tune-0/empty_rows.gross.1": "padding_rows",
    "dense-tune-0/filled_ends.clear.0": "filled_log_probs",
    "dense-test-0/filled_ends.clear.0": "filled_log_probs",
    "moe-test-0/filled_tails.gross.0": "filled_log_probs",
    "vision-test-0/filled_tails.clear.0": "filled_log_probs",
    "dense-tune-0/healthy.bf16.0": "healthy",
    "moe-test-0/healthy.both_bf16.0": "healthy",
    "moe-tune-0/healthy.fp8.6": "healthy",
    "dense-test-0/healthy.hot.6": "healthy",
    "moe-tune-0/healthy.fp8.2": "healthy",
    "dense-test-0/healthy.hot.7": "healthy",
    "moe-test-0/healthy.fp8.11": "healthy",
    "dense-tune-0/healthy.cold.4": "healthy",
    "dense-tune-0/healthy.young.2": "healthy",
    "vision-tune-0/healthy.both_bf16.8": "healthy",
    "vision-tune-0/healthy.fp8.8": "healthy",
    "moe-test-0/healthy.bf16.9": "healthy",
    "dense-tune-0/healthy.fp8.4": "healthy",
    "dense-tune-0/healthy.both_bf16.4": "healthy",
    "dense-tune-0/identical.gross.1": "identical_log_probs",
    "moe-tune-0/identical.clear.1": "identical_log_probs",
    "dense-tune-0/mask_on_observations.gross.1": "mask_too_wide",
    "vision-tune-0/mask_on_observations.gross.0": "mask_too_wide",
    "dense-tune-0/mask_on_templates.clear.0": "mask_too_wide",
    "dense-tune-0/mask_on_templates.gross.0": "mask_too_wide",
    "dense-tune-0/mask_punched.clear.1": "mask_punched",
    "dense-tune-0/mask_punched.gross.1": "mask_punched",
    "dense-tune-0/mixed_weights.gross.1": "mixed_weights",
    "vision-tune-0/mixed_weights.gross.1": "mixed_weights",
    "dense-tune-0/observations_masked.gross.1": "context_masked",
    "moe-tune-0/observations_masked.clear.0": "context_masked",
    "moe-tune-0/outlier_tokens.clear.0": "outlier_tokens",
    "dense-test-0/outlier_tokens.gross.0": "outlier_tokens",
    "dense-tune-0/packing_leak.clear.1": "packing_leak",
    "vision-test-0/packing_leak.clear.0": "packing_leak",
    "moe-tune-0/retokenised.clear.0": "retokenised",
    "moe-tune-0/retokenised.gross.0": "retokenised",
    "dense-tune-0/shifted_rounds.clear.1": "shifted_log_probs",
    "moe-tune-0/shifted_rounds.gross.0": "shifted_log_probs",
    "dense-tune-0/shifted_rows.clear.0": "shifted_log_probs",
    "vision-tune-0/shifted_rows.gross.0": "shifted_log_probs",
    "dense-tune-0/shifted_tails.clear.1": "shifted_log_probs",
    "moe-test-0/shifted_tails.gross.0": "shifted_log_probs",
    "dense-tune-0/stale_weights.clear.1": "stale_weights",
    "vision-tune-0/stale_weights.clear.0": "stale_weights",
    "dense-tune-0/swapped_in_groups.gross.1": "swapped_rows",
    "moe-tune-0/swapped_in_groups.gross.1": "swapped_rows",
    "moe-tune-0/swapped_rows.clear.1": "swapped_rows",
    "vision-tune-0/swapped_rows.gross.1": "swapped_rows",
    "dense-tune-0/sync_permuted.clear.1": "sync_broken",
    "dense-tune-0/sync_permuted.gross.0": "sync_broken",
    "moe-tune-0/temperature.clear.0": "temperature",
    "dense-tune-0/temperature.gross.0": "temperature",
    "vision-test-0/thoughts_stripped.gross.0": "retokenised",
    "dense-test-0/top_k.clear.1": "truncated_sampling",
    "dense-test-0/top_p.clear.0": "truncated_sampling",
    "dense-tune-0/top_p.just_visible.1": "truncated_sampling",
    "dense-tune-0/truncated_rounds.gross.0": "truncated_round",
    "vision-test-0/truncated_rounds.clear.1": "truncated_round",
    "vision-test-0/window_1.clear.0": "image_window",
    "vision-test-0/window_2.gross.1": "image_window",
    "vision-tune-0/window_2.gross.0": "image_window",
    "vision-tune-0/without_task.clear.0": "prompt_mismatch",
    "dense-tune-0/without_task.clear.0": "prompt_mismatch",
    "vision-tune-0/wrong_pictures.gross.0": "wrong_image",
    "vision-tune-0/wrong_pictures.clear.1": "wrong_image",
}

# Causes that values, rows, a lag or a sampling formula show; all others are places.
CLAIMED = EXACT | FORMULAS
# Batches in which the truth is neither claimed nor among the candidates.
MISSED = {
    # Two rows of sixteen that were cut off make no place of the ends of rounds.
    "dense-tune-0/truncated_rounds.gross.0",
    # A doubled BOS at twice the noise is noise.
    "moe-tune-0/begins_twice.just_visible.0",
    # Four samples of a prompt, of which one of four makes no place.
    "dense-tune-0/bad_worker.clear.1",
    # Of one rank, or of whole groups: a worker is listed, and not its kernels.
    "moe-tune-0/batch_shape.clear.0",
    "moe-tune-0/batch_shape.clear.1",
    # "From round 1 on", as what the context lost would be.
    "dense-test-0/decode_path.clear.1",
    "moe-test-0/decode_path.clear.1",
}


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {case.name: case for case in fixed.load()}


def test_the_file_has_exactly_the_batches_below(cases: dict[str, Case]) -> None:
    assert sorted(cases) == sorted(EXPECTED)


@pytest.fixture(scope="module")
def outcome_of(cases: dict[str, Case]) -> Callable[[str], Outcome]:
    return cache(lambda name: run(cases[name]))


@pytest.mark.parametrize("name", EXPECTED)
def test_nothing_stands_out_only_where_the_finder_found_nothing(
    name: str, cases: dict[str, Case], outcome_of: Callable[[str], Outcome]
) -> None:
    case = cases[name]
    found = rd.places(case.batch(), **case.call)
    if found["p"].notna().any():
        assert outcome_of(name).verdict not in ("healthy", "noisy"), found


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_claimed_is_true_and_the_truth_is_claimed_or_listed(
    name: str, cases: dict[str, Case], outcome_of: Callable[[str], Outcome]
) -> None:
    outcome, truth = outcome_of(name), EXPECTED[name]
    assert cases[name].causes == (truth,)
    assert not outcome.is_wrong, outcome.text
    if truth == "healthy":
        assert not outcome.is_alarm, outcome.text
        assert not outcome.claims
    elif truth in CLAIMED:
        assert outcome.is_claimed, outcome.text
    elif truth != "outlier_tokens" and name not in MISSED:
        assert outcome.is_listed, outcome.text


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

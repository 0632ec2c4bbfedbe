"""One value at many tokens: a fill, or a model that is sure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rounddiag.checks.fills import FILLS
from tests.checks.chats import EMPTY, NO_TOKEN, PASSED, came_to, scored

VARIED = [-1 - number / 8 for number in range(32)]


def check_fills(row: Sequence[float]) -> tuple[str, str, tuple[int, ...]]:
    """Check one sample of which the sampler alone has log-probs."""
    batch = scored([row], [VARIED[: len(row)]])
    return came_to(FILLS, replace(batch, old_log_probs=None))


def test_varied_log_probs_pass() -> None:
    assert check_fills(VARIED[1:]) == PASSED


def test_one_value_everywhere_is_a_fill() -> None:
    assert check_fills([-10.0] * 8) == (
        "failed",
        "1 sample with one rollout log-prob at many tokens: sample 0 has −10 at 100 %"
        " of them",
        (0,),
    )


def test_a_quarter_of_the_tokens_is_enough() -> None:
    assert check_fills([*VARIED[:24], *[-1.0625] * 8])[1].endswith(
        "has −1.0625 at 25 % of them"
    )
    assert check_fills([*VARIED[:25], *[-1.0625] * 7]) == PASSED


def test_few_tokens_may_be_equal() -> None:
    assert check_fills([-10.0] * 7) == PASSED


def test_a_sure_model_repeats_0() -> None:
    assert check_fills([0.0] * 24 + VARIED[:8]) == PASSED
    assert check_fills([-1.1920929e-07] * 30 + [-1.0, -2.0]) == PASSED


def test_nothing_but_0_is_a_fill() -> None:
    assert check_fills([0.0] * 8)[1].endswith("sample 0 has 0 at 100 % of them")


def test_the_samples_of_both_engines_are_named() -> None:
    rollout = [VARIED[:12], [1.0] * 12, [1.0] * 12]
    old = [[-9.0] * 12, VARIED[:12], VARIED[:12]]
    status, detail, samples = came_to(FILLS, scored(rollout, old))
    assert (status, samples) == ("failed", (0, 1, 2))
    first, second = detail.split("; ")
    assert first.startswith(
        "24 tokens whose rollout log-prob is exactly 1, and −1.69 nat on average by the"
        " other engine, in 2 samples: sample 1 round 0 position 0"
    )
    assert second.startswith("12 tokens whose old log-prob is exactly −9, and −1.69")


@pytest.mark.parametrize(("num_others", "status"), [(11, "failed"), (12, "passed")])
def test_most_far_tokens_must_have_the_value(num_others: int, status: str) -> None:
    # 12 far tokens have -0.1; others far ones have values of their own; 8 are near.
    near = [-0.2 - number / 32 for number in range(8)]
    far = [-6 - number / 8 for number in range(num_others)]
    old = [-3 - number / 8 for number in range(12)] + [value + 4 for value in far]
    batch = scored([[-0.1] * 12 + far + near], [old + near])
    assert came_to(FILLS, batch)[0] == status


def test_a_fill_of_observations_is_no_fill() -> None:
    mask = [[1] * 8 + [0] * 24]
    batch = scored([VARIED[:8] + [-1.0625] * 24], [VARIED], masks=mask)
    assert came_to(FILLS, batch) == PASSED


def test_minus_infinity_can_fill_and_nan_is_another_check() -> None:
    filled = check_fills([float("-inf")] * 9 + VARIED[:8])
    assert filled[1].endswith("sample 0 has −inf at 53 % of them")
    assert check_fills([float("nan")] * 9 + VARIED[:8]) == PASSED


def test_without_a_generated_token_there_is_nothing_to_test() -> None:
    assert came_to(FILLS, EMPTY) == NO_TOKEN

"""Log-probs that no engine computes, and batches that cannot be measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rounddiag.checks.contracts import Contract
from rounddiag.checks.log_probs import AT_MOST_ZERO, FINITE, MEASURABLE
from tests.checks.chats import EMPTY, NO_TOKEN, PASSED, came_to, scored

NAN, INF = float("nan"), float("inf")
ALL = [AT_MOST_ZERO, FINITE, MEASURABLE]


@pytest.mark.parametrize("contract", ALL)
def test_usual_log_probs_pass(contract: Contract) -> None:
    assert came_to(contract, scored([[-1.0, -0.5]], [[-1.5, 0.0]])) == PASSED


@pytest.mark.parametrize("contract", ALL)
def test_without_a_generated_token_there_is_nothing_to_test(contract: Contract) -> None:
    assert came_to(contract, EMPTY) == NO_TOKEN
    assert came_to(contract, scored([[1.0]], [[NAN]], masks=[[0]])) == NO_TOKEN


@pytest.mark.parametrize("contract", ALL)
def test_observations_are_not_looked_at(contract: Contract) -> None:
    batch = scored([[-1.0, 9.0, NAN]], [[-1.5, INF, -9.0]], masks=[[1, 0, 0]])
    assert came_to(contract, batch) == PASSED


def test_values_above_0_are_named_for_each_engine() -> None:
    rollout = [[-1.0, 0.5, -1.0], [2.0, -1.0, 0.25]]
    batch = scored(
        rollout, [[-1.0, -1.0, 0.125], [-1.0] * 3], masks=[[1, 1, 1], [1, 0, 1]]
    )
    assert came_to(AT_MOST_ZERO, batch) == (
        "failed",
        "3 tokens whose rollout log-prob is above 0, in 2 samples: sample 0 round 0"
        " position 1, sample 1 round 0 position 0, sample 1 round 1 position 2;"
        " 1 token whose old log-prob is above 0, in 1 sample: sample 0 round 0"
        " position 2",
        (0, 1),
    )


def test_rounding_may_end_a_little_above_0() -> None:
    assert came_to(AT_MOST_ZERO, scored([[4.8e-7]], [[9e-5]])) == PASSED
    assert came_to(AT_MOST_ZERO, scored([[4.8e-7]], [[2e-4]]))[0] == "failed"


def test_only_the_first_positions_are_named() -> None:
    batch = scored([[1.0] * 1200], [[-1.0] * 1200])
    assert came_to(AT_MOST_ZERO, batch) == (
        "failed",
        "1,200 tokens whose rollout log-prob is above 0, in 1 sample: sample 0 round 0"
        " position 0, sample 0 round 0 position 1, sample 0 round 0 position 2 and"
        " 1,197 more; no rollout log-prob is below 0: probabilities?",
        (0,),
    )


def test_what_is_not_finite_is_counted() -> None:
    batch = scored([[NAN, -INF, -1.0]], [[-1.0, -1.0, NAN]])
    assert came_to(FINITE, batch) == (
        "failed",
        "1 token whose rollout log-prob is NaN, in 1 sample: sample 0 round 0"
        " position 0; 1 token whose rollout log-prob is infinite, in 1 sample: sample 0"
        " round 0 position 1; 1 token whose old log-prob is NaN, in 1 sample: sample 0"
        " round 0 position 2",
        (0,),
    )


def test_a_round_of_nan_alone_is_unknown_and_has_not_failed() -> None:
    rollout = [[NAN, NAN, 0.0, -1.0, -2.0], [-1.0, -1.0, 0.0, NAN, NAN]]
    old = [[-1.5] * 5] * 2
    masks = [[1, 1, 0, 1, 1]] * 2
    assert came_to(FINITE, scored(rollout, old, masks=masks)) == (
        "not testable",
        "rollout log-probs are NaN at all tokens of 2 rounds: they are unknown",
        (),
    )
    old = [[-1.5] * 4 + [NAN], [-1.5] * 5]  # one token of a known round is a bug
    assert came_to(FINITE, scored(rollout, old, masks=masks)) == (
        "failed",
        "1 token whose old log-prob is NaN, in 1 sample: sample 0 round 1 position 4",
        (0,),
    )


BYPASS = {"rollout_correction": {"bypass_mode": True}}


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({}, ""),
        ({"old_log_probs_source": "a pass of its own"}, ""),
        ({"facts": {"rollout_correction": {"bypass_mode": False}}}, ""),
        ({"not_measurable": "bit-identical: bypass mode"}, ""),
        (BYPASS, "the run recorded `rollout_correction.bypass_mode=True`"),
        ({"facts": BYPASS}, "the run recorded `rollout_correction.bypass_mode=True`"),
        (
            {"old_log_probs_source": "copied from the sampler"},
            "the file says that `old_log_probs` are copied from the sampler",
        ),
    ],
)
def test_equal_log_probs_are_a_copy_only_where_the_file_says_so(
    meta: dict[str, Any], reason: str
) -> None:
    batch = scored([[-1.0, -2.0, 0.0]], [[-1.0, -2.0, -5.0]], masks=[[1, 1, 0]])
    batch = replace(batch, meta=meta)
    copies = "`old_log_probs` are copies of `rollout_log_probs`"
    expected = ("failed", f"{reason}: {copies}", ()) if reason else PASSED
    assert came_to(MEASURABLE, batch) == expected
    other = replace(batch, old_log_probs=batch.log_probs("old") - 0.5)
    assert came_to(MEASURABLE, other) == PASSED


def test_the_reason_of_the_loader_explains_zeros_and_nothing_else() -> None:
    meta = {"not_measurable": "the pass was\nskipped"}
    batch = scored([[-1.0]], [[0.0]], meta=meta)
    assert came_to(MEASURABLE, batch) == ("failed", r"the pass was\nskipped", ())
    assert came_to(MEASURABLE, scored([[-1.0]], [[-2.0]], meta=meta)) == PASSED


def test_tokens_of_another_block_are_found(device: torch.device) -> None:
    rollout = torch.full((1, 200_000), -1.0)
    rollout[0, [5, 70_000, 199_999]] = 1.0
    batch = scored(rollout.tolist(), [[-2.0] * 200_000]).to(device)
    assert came_to(AT_MOST_ZERO, batch)[1] == (
        "3 tokens whose rollout log-prob is above 0, in 1 sample: sample 0 round 0"
        " position 5, sample 0 round 0 position 70000, sample 0 round 0 position 199999"
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_precision_is_understood(dtype: torch.dtype) -> None:
    rows = [torch.tensor([NAN, 1.0], dtype=dtype)]
    batch = scored([[-1.0, -1.0]], [[-1.0, -2.0]], masks=[[1, 1]])
    batch = type(batch).from_rows(
        response_ids=[torch.arange(2)],
        response_mask=[torch.ones(2)],
        rollout_log_probs=rows,
        old_log_probs=[torch.tensor([-1.0, -2.0], dtype=dtype)],
    )
    assert [came_to(contract, batch)[0] for contract in (FINITE, AT_MOST_ZERO)] == [
        "failed"
    ] * 2


LOGITS = (
    "logits (vLLM saves them in this column under `logprobs_mode` `raw_logits` or"
    " `processed_logits`)?"
)
NOT_MINUS = (
    "; of either sign they are far from rollout (mean |old + rollout| is {} nat):"
    f" {LOGITS}"
)
# Of tokens whose logits vLLM 0.32.0 (CPU, `logprobs_mode="raw_logits"`) returned as
# 2.2, 2.6, 0.3 and 3.3, the log-probs are between these two.
OF_VLLM = [-3.8, -2.6, -3.5, -2.7]


@pytest.mark.parametrize(
    ("rollout", "old", "hint"),
    [
        # The other engine has one value for all: it does not say what they are.
        ([-1.0] * 3, [0.5, 1.0, 0.0], "; no old log-prob is below 0: probabilities?"),
        ([-1.0] * 3, [0.5, NAN, -0.5], ""),
        (
            [-1.0] * 3,
            [0.5, 1.5, NAN],
            f"; no old log-prob is below 0: minus log-probs, or {LOGITS}",
        ),
        ([-1.0] * 3, [INF, NAN, NAN], ""),
        # The other engine says it. |2.2 - 3.8|, |2.6 - 2.6|, 3.2 and 0.6: mean 1.35.
        (OF_VLLM, [2.2, 2.6, 0.3, 3.3], NOT_MINUS.format("1.35")),
        (OF_VLLM, [2.2, 2.6, -0.3, 3.3], NOT_MINUS.format("1.5")),
        (
            OF_VLLM,
            [3.7, 2.7, 3.5, 2.6],
            "; no old log-prob is below 0: minus log-probs?",
        ),
        (
            [-0.5, -2.0, -0.1, -3.0],
            [0.6, 0.14, 0.9, 0.05],
            "; no old log-prob is below 0: probabilities?",
        ),
        # One bad log-prob among sound ones is no other kind of value.
        (OF_VLLM, [-3.7, -2.7, -3.5, 0.1], ""),
    ],
)
def test_what_values_above_0_may_be_is_asked(
    rollout: list[float], old: list[float], hint: str
) -> None:
    mask = [1] * len(old) + [0]
    batch = scored([[*rollout, -1.0]], [[*old, -9.0]], masks=[mask])
    _, detail, _ = came_to(AT_MOST_ZERO, batch)
    before, _, after = detail.partition(";")
    assert before.startswith(f"{sum(v > 0 for v in old)} token")
    assert after == hint.removeprefix(";")


def test_scores_that_were_attached_are_looked_at_too() -> None:
    scores = {
        "vllm": [torch.tensor([-1.0, NAN]), torch.tensor([NAN, NAN])],
        "ref": [torch.tensor([-1.0, 0.5]), torch.tensor([-1.0, -INF])],
    }
    batch = scored([[-1.0, -2.0]] * 2, [[-1.5, -2.0]] * 2, scores=scores)
    assert came_to(AT_MOST_ZERO, batch) == (
        "failed",
        "1 token whose ref log-prob is above 0, in 1 sample: sample 0 round 0"
        " position 1",
        (0,),
    )
    assert came_to(FINITE, batch) == (
        "failed",
        "1 token whose vllm log-prob is NaN, in 1 sample: sample 0 round 0 position 1;"
        " 1 token whose ref log-prob is infinite, in 1 sample: sample 1 round 0"
        " position 1",
        (0, 1),
    )


def test_weighted_log_probs_may_be_anything() -> None:
    scores = {"rollout_is": [torch.tensor([0.5, -INF])]}
    batch = scored([[-1.0, -2.0]], [[-1.5, -2.0]], scores=scores)
    assert came_to(AT_MOST_ZERO, batch) == PASSED
    assert came_to(FINITE, batch) == PASSED


@pytest.mark.parametrize(
    ("rollout", "old", "reason"),
    [
        ([-1.0, -2.0, 0.0], [0.0, 0.0, 0.0], "old"),
        ([0.0, 0.0, 0.0], [-1.0, -2.0, -3.0], "rollout"),
        ([0.0, 0.0, NAN], [0.0, 0.0, 0.0], "rollout"),
    ],
)
def test_zeros_of_one_engine_are_not_measurable(
    rollout: list[float], old: list[float], reason: str
) -> None:
    batch = scored([rollout], [old], masks=[[1, 1, 0]])
    zeros = f"`{reason}_log_probs` are 0 at all 2 generated tokens"
    expected = ("failed", f"{zeros}: none was computed, or saved", ())
    assert came_to(MEASURABLE, batch) == expected


@given(
    rows=st.lists(st.lists(st.booleans(), min_size=1, max_size=9), min_size=1),
    empty=st.sampled_from([0.0, NAN]),
)
def test_a_mask_that_leaves_out_all_that_was_sampled_is_named(
    rows: list[list[bool]], empty: float
) -> None:
    """The sampler has a value where it wrote, so the opposite mask has none."""
    written = [[*row, False, True] for row in rows]
    values = [[-1.0 if own else empty for own in row] for row in written]
    sound = scored(values, [[-1.5] * len(row) for row in written], masks=written)
    assert came_to(MEASURABLE, sound) == PASSED
    opposite = [[int(not own) for own in row] for row in written]
    batch = scored(values, [[-1.5] * len(row) for row in written], masks=opposite)
    status, detail, _ = came_to(MEASURABLE, batch)
    ones, zeros = sum(map(sum, opposite)), sum(map(sum, written))
    assert status == "failed"
    assert f"at the {ones:,} tokens where it is 1, and {zeros:,} at the {zeros:,}" in (
        detail
    )


def test_one_value_other_than_0_is_measurable() -> None:
    batch = scored([[-1.0, -2.0, -3.0]], [[0.0, -1e-30, 0.0]])
    assert came_to(MEASURABLE, batch) == PASSED

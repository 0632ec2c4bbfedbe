from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from rounddiag import metrics, reconcile
from rounddiag.errors import BatchError
from tests import oracle
from tests.batches import (
    AWKWARD,
    MASK,
    OLD,
    ROLLOUT,
    hand_batch,
    masks,
    padded,
    random_log_probs,
)

UNDEFINED = [
    "training/rollout_probs_diff_max",
    "training/rollout_probs_diff_mean",
    "training/rollout_probs_diff_std",
    "training/rollout_actor_probs_pearson_corr",
]


def test_means_per_round_are_over_tokens(device: torch.device) -> None:
    found = metrics(hand_batch(device))
    assert found["per_round/total_rounds"] == 2
    assert found["per_round/round_0_abs_diff_mean"] == 2.5 / 6
    assert found["per_round/round_0_token_count"] == 6
    assert found["per_round/round_1_abs_diff_mean"] == 1.5
    assert found["per_round/round_1_token_count"] == 2
    assert found["per_round/max_round_diff"] == 1
    assert found["per_round/max_diff_value"] == 1.5


def test_kl_is_the_mean_of_minus_diff() -> None:
    assert metrics(hand_batch())["rollout_corr/kl"] == pytest.approx(-2.0 / 8)


def test_plain_tensors_give_the_same(device: torch.device) -> None:
    tensors = [torch.tensor(v, device=device) for v in (MASK, OLD, ROLLOUT)]
    assert metrics(*tensors) == metrics(hand_batch(device))


@given(masks(), st.integers(0, 2**32))
def test_random_batches_equal_the_loop(mask: list[list[int]], seed: int) -> None:
    assume(sum(map(sum, mask)) > 2)
    shape = len(mask), len(mask[0])
    old, rollout = random_log_probs(shape, seed), random_log_probs(shape, seed + 1)
    found = metrics(torch.tensor(mask), old, rollout)
    wanted = oracle.metrics(mask, old.double().tolist(), rollout.double().tolist())
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float32])
def test_awkward_rows_equal_the_loop(device: torch.device, dtype: torch.dtype) -> None:
    mask = torch.tensor(AWKWARD, device=device).to(dtype)
    old, rollout = random_log_probs((7, 8), 1), random_log_probs((7, 8), 2)
    found = metrics(mask, old.to(device), rollout.to(device))
    wanted = oracle.metrics(AWKWARD, old.double().tolist(), rollout.double().tolist())
    assert found == pytest.approx(wanted, rel=1e-6)


def test_no_generated_token(device: torch.device) -> None:
    zeros = torch.zeros(2, 3, device=device)
    found = metrics(zeros, zeros, zeros)
    assert found.pop("training/rollout_probs_diff_valid") == 0
    assert found.pop("per_round/total_rounds") == 0
    assert sorted(found) == sorted(UNDEFINED)
    assert all(math.isnan(value) for value in found.values())


def test_one_token_has_no_spread(device: torch.device) -> None:
    one = torch.ones(1, 1, device=device)
    found = metrics(one, one * -1.0, one * -1.5)
    assert math.isnan(found["training/rollout_probs_diff_std"])
    assert math.isnan(found["training/rollout_actor_probs_pearson_corr"])
    assert found["per_round/max_diff_value"] == 0.5


def test_a_round_that_is_nan_cannot_be_the_worst() -> None:
    old = torch.tensor([[math.nan, 0.0, -1.0, 0.0, -1.0]])
    mask = torch.tensor([[1, 0, 1, 0, 1]])
    found = metrics(mask, old, torch.zeros(1, 5))
    assert math.isnan(found["per_round/round_0_abs_diff_mean"])
    assert (found["per_round/max_round_diff"], found["per_round/max_diff_value"]) == (
        1,
        1.0,
    )
    assert math.isnan(found["rollout_corr/kl"])


def test_no_round_wins_when_all_are_nan() -> None:
    found = metrics(torch.ones(1, 2), torch.full((1, 2), math.nan), torch.zeros(1, 2))
    assert found["per_round/max_round_diff"] == -1
    assert "per_round/max_diff_value" not in found


def test_of_equal_rounds_the_lowest_is_the_worst() -> None:
    old = torch.tensor([[-1.0, 0.0, -1.0]])
    found = metrics(torch.tensor([[1, 0, 1]]), old, torch.zeros(1, 3))
    assert found["per_round/max_round_diff"] == 0


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((torch.ones(1, 2),), "Tensor"),
        (("step_40.parquet",), "str"),
        ((np.ones((1, 2)),) * 3, "ndarray, ndarray, ndarray"),
        ((None,), "nothing"),
    ],
)
def test_neither_a_batch_nor_three_tensors_is_an_error(
    arguments: tuple[Any, ...], found: str
) -> None:
    message = (
        "expected a Batch, or three tensors: `response_mask, old_log_probs,"
        f" rollout_log_probs`; found {found}. Open a file with `rounddiag.load(path)`"
        " first, or pass all three, with `torch.as_tensor` around arrays."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        metrics(*arguments)


def test_reconcile_finds_equal_what_float32_makes_of_it() -> None:
    batch = hand_batch()
    logged = {k: float(torch.tensor(v)) for k, v in metrics(batch).items()}
    assert reconcile(batch, logged)["equal"].all()


def test_reconcile_names_the_likely_reason() -> None:
    batch = padded(
        [[1, 1, 1, 0], [1, 0, 1, 0]],
        torch.tensor([[-1.0, -2.0, -0.5, -3.0], [-0.25, -5.0, -1.5, 0.0]]),
        torch.tensor([[-1.5, -2.0, -0.25, -1.0], [-1.25, 0.0, -1.0, 0.0]]),
        lengths=torch.tensor([4, 3]),
        loss_mask=torch.tensor([[1, 0, 1, 0], [1, 0, 1, 0]]),
    )
    # By hand: |diff| is .5 0 .25 | 1 .5 in round 0 and 1, and 2, 5 in observations.
    prob_mean = sum(
        abs(math.exp(a) - math.exp(b))
        for a, b in [(-1, -1.5), (-2, -2), (-0.5, -0.25), (-0.25, -1.25)]
    )
    logged = {
        "per_round/max_diff_value": 0.5,
        "training/rollout_probs_diff_mean": 2.25 / 5,
        "per_round/round_0_abs_diff_mean": prob_mean / 4,
        "rollout_corr/kl": -(0.25 / 3 + 0.25) / 2,
        "rollout_corr/log_ppl_diff_max": 0.25,
        "per_round/round_0_token_count": 5,
        "per_round/round_1_token_count": 0,
        "per_round/round_1_abs_diff_mean": 0.5,
    }
    found = reconcile(batch, logged).set_index("name")["reason"].to_dict()
    assert found == {
        "per_round/max_diff_value": "",
        "training/rollout_probs_diff_mean": "over log-probabilities, not probabilities",
        "per_round/round_0_abs_diff_mean": "over probabilities, not log-probabilities",
        "rollout_corr/kl": "weighted by sample, not by token",
        "rollout_corr/log_ppl_diff_max": "the two engines are exchanged",
        "per_round/round_0_token_count": "rows missing: the trainer saw more than "
        "the file holds",
        "per_round/round_1_token_count": "not explained: check that it is of this "
        "step, these rows and this mask",
        "per_round/round_1_abs_diff_mean": "",
    }


def test_reconcile_names_another_mask() -> None:
    batch = padded(
        [[1, 1, 0, 1]],
        torch.tensor([[-1.0, -2.0, -3.0, -4.0]]),
        torch.tensor([[-1.5, -2.0, -1.0, -4.25]]),
        loss_mask=torch.tensor([[0, 1, 0, 1]]),
    )
    logged = {
        "rollout_corr/training_log_ppl": 2.5,
        "rollout_corr/rollout_log_ppl": 3.125,
    }
    found = reconcile(batch, logged)
    assert found["reason"].tolist() == [
        "another mask: observations are counted too",
        "another mask: after rejection (`loss_mask`)",
    ]


def test_reconcile_of_an_unknown_name_offers_the_nearest() -> None:
    found = reconcile(hand_batch(), {"rollout_corr/kll": 0.0})
    assert found["reason"].tolist() == [
        "not a number of this batch; did you mean 'rollout_corr/kl'?"
    ]

"""Whether weights arrived, by digests; versions ahead of the trainer, and unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import rounddiag as rd
from rounddiag.capture import digest_weights
from rounddiag.checks.weights import (
    ARRIVED,
    CHANGED,
    NOT_AHEAD,
    VERSIONS_KNOWN,
    describe_weights,
)

Tensors = dict[str, torch.Tensor]
BASE = ("embed.weight", "layers.0.norm.weight", "layers.1.down.weight")
ADAPTER = {"layers.0.q.lora_A.weight": torch.ones(2, 4)}


def weights(step: int, dtype: torch.dtype = torch.float32) -> Tensors:
    """Weights of which each step has others, by less than bfloat16 keeps in some."""
    values = torch.arange(64.0).reshape(8, 8) / 64
    return {name: (values + step / 512).to(dtype) for name in BASE}


def event(step: int, tensors: Tensors, worker: int = 0) -> dict[str, Any]:
    digests = digest_weights(tensors)
    return {"version": step, "worker": worker, "seconds": 2.0, "tensors": digests}


def batch_of(
    sent: list[dict[str, Any]], received: list[dict[str, Any]], shift: float = 0.001
) -> rd.Batch:
    """Eight samples whose log-probs differ by a small noise."""
    generator = torch.Generator().manual_seed(0)
    rollout = -torch.rand(8, 20, generator=generator)
    noise = torch.randn(8, 20, generator=generator)
    return rd.Batch.from_padded(
        response_ids=torch.arange(160).reshape(8, 20) % 90,
        response_mask=torch.ones(8, 20, dtype=torch.int64),
        rollout_log_probs=rollout,
        old_log_probs=rollout + shift * noise,
        meta={"weights": {"sent": sent, "received": received}},
    )


def found(batch: rd.Batch) -> dict[str, str]:
    """Return the first part of what fails, by cause."""
    checks = (ARRIVED.check(batch), CHANGED.check(batch))
    failed = [check for check in checks if check.status == "failed"]
    return {check.cause: check.detail.partition(":")[0] for check in failed}


SENT = [event(step, weights(step)) for step in (11, 12, 13)]


def test_weights_that_arrived_pass_in_the_dtype_in_which_they_are_loaded() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        batch = batch_of(SENT, [event(13, weights(13, dtype))])
        assert (ARRIVED.check(batch).status, found(batch)) == ("passed", {})
        assert describe_weights(batch.meta) == "as sent"


@pytest.mark.parametrize("told", [12, 13])
def test_older_weights_are_named_whatever_the_worker_was_told(told: int) -> None:
    batch = batch_of(SENT, [event(told, weights(12))])
    text = "the sampler still has the weights of step 12"
    assert found(batch) == {"sync_broken": text}
    assert describe_weights(batch.meta) == text
    # A fact that explains all of the mismatch, however small that is.
    assert rd.diagnose(batch).verdict == "broken"


def test_weights_of_no_step_are_counted() -> None:
    mixed = {**weights(13), BASE[0]: torch.zeros(8, 8)}
    batch = batch_of(SENT, [event(13, mixed)])
    detail = "1 of 3 tensors that the sampler received are not those that were sent"
    assert found(batch) == {"sync_broken": detail}
    norm = float(weights(13)[BASE[0]].norm())
    end = f"embed.weight, of norm 0, not {norm:.6g}"
    assert ARRIVED.check(batch).detail.endswith(end)


def test_an_adapter_that_was_not_delivered() -> None:
    sent = [event(12, weights(0) | ADAPTER), event(13, weights(0) | ADAPTER)]
    batch = batch_of(sent, [event(13, weights(0))])
    assert found(batch)["sync_broken"] == "the adapter was not delivered"
    whole = batch_of(sent, [event(13, weights(0) | ADAPTER)])
    assert "sync_broken" not in found(whole)


def test_workers_are_named_where_they_differ() -> None:
    received = [event(13, weights(12 + worker % 2), worker) for worker in range(4)]
    detail = ARRIVED.check(batch_of(SENT, received)).detail
    assert detail.startswith("the sampler still has the weights of step 12")
    assert detail.endswith("on worker 0, 2")


def test_a_trainer_whose_weights_do_not_change() -> None:
    sent = [event(9, weights(9)), *(event(step, weights(10)) for step in (10, 11))]
    batch = batch_of(sent, [event(11, weights(10))])
    text = "the trainer's weights did not change between 10 and 11"
    assert found(batch) == {"frozen_weights": text}
    assert describe_weights(batch.meta) == text


def test_a_change_that_only_float32_keeps_is_one() -> None:
    tiny = {name: values + 2**-20 for name, values in weights(10).items()}
    batch = batch_of([event(10, weights(10)), event(11, tiny)], [])
    assert CHANGED.check(batch).status == "passed"


def test_what_cannot_be_compared_is_not_said_to_differ() -> None:
    others = {f"model.{name}": values for name, values in weights(13).items()}
    shards = {name: values[:4] for name, values in weights(13).items()}
    for received in ([], [event(13, others)], [event(13, shards)]):
        batch = batch_of(SENT, received)
        assert ARRIVED.check(batch).status == "not testable"
        assert describe_weights(batch.meta) == ""


@pytest.mark.parametrize("odd", [None, 3, {"sent": 3}, {"sent": [3], "received": [{}]}])
def test_an_odd_entry_is_not_testable(odd: object) -> None:
    batch = replace(batch_of([], []), meta={"weights": odd})
    assert ARRIVED.check(batch).status == CHANGED.check(batch).status == "not testable"
    assert describe_weights(batch.meta) == ""


def versioned(versions: list[list[float]], step: int) -> rd.Batch:
    mask = torch.ones(2, 3, dtype=torch.int64)
    return rd.Batch.from_padded(
        response_ids=mask,
        response_mask=mask,
        step=step,
        token_columns={"weight_versions": torch.tensor(versions)},
    )


def test_tokens_of_newer_weights_are_named() -> None:
    check = NOT_AHEAD.check(versioned([[7, 7, 9], [7, 7, 7]], step=7))
    assert (check.status, check.kind, check.cause) == ("failed", "bug", "newer_weights")
    assert check.tokens is not None
    assert (check.tokens.tolist(), check.samples) == ([2], (0,))
    assert "version 9 where the trainer has 7" in check.detail
    passed = NOT_AHEAD.check(versioned([[7, 7, 9], [7, 7, 7]], 9))
    assert passed.status == "passed"
    for step in (10, 8, 3):  # versions may be counted otherwise than steps
        unknown = NOT_AHEAD.check(versioned([[7, 7, 9], [7, 7, 7]], step))
        assert (unknown.status, unknown.field) == ("not testable", "trainer_version")


def test_versions_that_are_unknown_are_counted() -> None:
    nan = float("nan")
    check = VERSIONS_KNOWN.check(versioned([[7, nan, nan], [7, 7, 7]], step=7))
    assert (check.status, check.samples) == ("failed", (0,))
    assert check.detail == "versions unknown in 1 of 2 samples"
    known = VERSIONS_KNOWN.check(versioned([[7, 7, 7]] * 2, step=7))
    assert known.status == "passed"

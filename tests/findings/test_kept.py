"""A batch keeps its diagnosis until something of it changes, and no longer than it."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import rounddiag as rd
from rounddiag.findings import DETECTORS, REFERENCE, View, register
from tests.findings.small import arrays, made


def build() -> rd.Batch:
    """A sound batch with a column, meta and a second score."""
    parts = arrays(16)
    return made(
        parts,
        sample_columns={"rank": np.arange(16) % 4},
        scores={"ref": torch.from_numpy(parts["rollout"]).float()},
        meta={"facts": {"model": "dense"}},
        rewards=torch.zeros(16),
    )


def test_the_same_question_has_the_same_answer() -> None:
    batch, other = build(), build()
    first = rd.diagnose(batch)
    assert rd.diagnose(batch) is first
    pair = rd.diagnose(batch, a="ref")
    assert pair is not first
    assert rd.diagnose(batch, kind="moe") is not first
    assert rd.diagnose(batch, healthy=other) is rd.diagnose(batch, healthy=other)
    assert rd.diagnose(batch, healthy=other) is not rd.diagnose(batch, healthy=build())
    assert rd.diagnose(batch) is first
    assert rd.diagnose(batch, a="ref") is pair


@pytest.mark.parametrize(
    "edit",
    [
        lambda batch: batch.old_log_probs.mul_(1.5),
        lambda batch: batch.rollout_log_probs.sub_(0.1),
        lambda batch: batch.response_ids.add_(1),
        lambda batch: batch.rewards.add_(1),
        lambda batch: batch.scores["ref"].sub_(0.1),
        lambda batch: batch.sample_columns["rank"].fill(0),
        lambda batch: batch.meta["facts"].update(model="Qwen3-30B-A3B"),
    ],
    ids=["old", "rollout", "ids", "rewards", "scores", "column", "meta"],
)
def test_each_edit_gives_a_new_one(edit: Callable[[rd.Batch], object]) -> None:
    batch = build()
    first = rd.diagnose(batch)
    edit(batch)
    assert rd.diagnose(batch) is not first


def test_an_edit_of_the_healthy_batch_a_range_or_a_detector_gives_a_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batch, sound = build(), build()
    first = rd.diagnose(batch, healthy=sound)
    sound.log_probs("old").mul_(1.1)
    assert rd.diagnose(batch, healthy=sound) is not first
    first = rd.diagnose(batch)
    monkeypatch.setitem(REFERENCE, "dense", replace(REFERENCE["dense"], usual=1.0))
    second = rd.diagnose(batch)
    assert second is not first

    @register("nothing", kind="fact")
    def nothing(_: View) -> None:
        return None

    try:
        assert rd.diagnose(batch) is not second
    finally:
        del DETECTORS["nothing"]


def test_it_is_neither_pickled_nor_copied() -> None:
    batch = build()
    size = len(pickle.dumps(batch))
    first = rd.diagnose(batch)
    assert len(pickle.dumps(batch)) == size
    copy = pickle.loads(pickle.dumps(batch))  # noqa: S301 our own bytes
    assert rd.diagnose(copy) is not first
    assert rd.diagnose(replace(batch, step=3)) is not first


def test_twenty_batches_leave_no_memory() -> None:
    gone: list[weakref.ref[Any]] = []
    for _ in range(20):
        batch = build()
        diagnosis = rd.diagnose(batch)
        gone += [weakref.ref(batch), weakref.ref(diagnosis)]
    del batch, diagnosis
    gc.collect()
    assert [reference() for reference in gone] == [None] * 40

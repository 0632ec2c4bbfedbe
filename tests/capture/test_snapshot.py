"""No reference to the trainer's batch is kept: it may be overwritten and freed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.capture import Recorder, recorder
from rounddiag.capture.step_file import save_step
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import DataProto
from tests.loaders.facts import has


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, the thread in the background writes nothing."""
    gate = threading.Event()

    def wait(*args: Any) -> None:
        gate.wait(timeout=60)
        save_step(*args)

    monkeypatch.setattr(recorder, "save_step", wait)
    yield gate
    gate.set()


def tensors_of(proto: DataProto) -> list[torch.Tensor]:
    rows = proto.non_tensor_batch["multi_modal_inputs"]
    return [*proto.batch.values(), *(tensor for row in rows for tensor in row.values())]


def test_what_is_overwritten_later_is_saved_as_it_was(
    proto: DataProto, tmp_path: Path, gate: threading.Event
) -> None:
    proto.batch["token_level_scores"] = proto.batch.pop("rm_scores")
    proto.batch["response_mask"] = proto.batch["response_mask"].int()
    proto.batch["rollout_log_probs"] = proto.batch["rollout_log_probs"].double()
    records = [[{"request_id": "r"}] for _ in range(2)]
    proto.non_tensor_batch["round_records"] = records
    with Recorder(tmp_path) as rec:
        rec.step(0, proto)
        for tensor in tensors_of(proto):
            tensor.zero_()
        proto.non_tensor_batch["uid"][:] = "overwritten"
        proto.non_tensor_batch["__num_turns__"][:] = 0
        proto.meta_info["temperature"] = 0.0
        records[0][0]["request_id"] = "overwritten"
        gate.set()
    assert rec.errors == 0
    batch = load_parquet(tmp_path / "step_0.parquet")
    expected = {
        "rounds.num_tokens": [2, 1, 2, 2],
        "lengths": [11, 12],
        "old_log_probs": [-0.75] * 23,
        "rollout_log_probs": [-0.5] * 23,
        "rewards": [1.0, 0.0],
        "group_ids": ["a", "b"],
        "sample.__num_turns__": [2, 4],
        "meta.sampling": {"temperature": 0.7},
        "round.request_id": ["r", "r"],
    }
    has(batch, expected)
    assert batch.require_ids().tolist()[:3] == [7, 7, 99]
    pixel = np.asarray(batch.images[1][0].image())[0, 0]
    assert np.allclose(pixel, (191, 183, 174), atol=3)  # one deviation above the mean


def test_what_is_freed_later_is_free_while_the_step_waits(
    proto: DataProto, tmp_path: Path, gate: threading.Event
) -> None:
    tensors = [weakref.ref(tensor) for tensor in tensors_of(proto)]
    with Recorder(tmp_path) as rec:
        rec.step(0, proto)
        rec.finish(0, proto)
        for holder in (proto.batch, proto.non_tensor_batch, proto.meta_info):
            holder.clear()
        gc.collect()
        assert [ref() for ref in tensors] == [None] * len(tensors)
        gate.set()
    assert len(load_parquet(tmp_path / "step_0.parquet")) == 2


def test_an_error_keeps_nothing_either(proto: DataProto, tmp_path: Path) -> None:
    proto.batch["old_log_probs"] = torch.zeros(2, 11)
    tensors = [weakref.ref(tensor) for tensor in tensors_of(proto)]
    with Recorder(tmp_path) as rec:
        rec.step(0, proto)
        assert rec.errors == 1
        for holder in (proto.batch, proto.non_tensor_batch):
            holder.clear()
        gc.collect()
        assert [ref() for ref in tensors] == [None] * len(tensors)


def test_arrays_that_cannot_be_written_to_as_from_an_object_store(
    tmp_path: Path,
) -> None:
    ones = np.ones((2, 2), dtype=np.float32)
    fields = {
        "responses": np.array([[1, 2], [3, 4]]),
        "response_mask": ones,
        "rollout_log_probs": -ones,
        "old_log_probs": -ones / 2,
        "reward": np.array([0.5, 1.0]),
    }
    for array in fields.values():
        array.flags.writeable = False
    with Recorder(tmp_path) as rec:
        rec.step(0, fields)
    batch = load_parquet(tmp_path / "step_0.parquet")
    assert batch.log_probs("old").tolist() == [-0.5] * 4
    assert batch.sample_columns["reward"].tolist() == [0.5, 1.0]

"""verl's V1 trainer: rows in a queue. `tests/interop` does this with the real one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rounddiag.capture import Recorder
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import IMAGE, inputs
from tests.loaders.facts import has


class TensorDict(dict[str, Any]):
    batch_size = torch.Size([3])


@dataclass
class KVBatchMeta:
    keys: list[str]
    tags: list[dict[str, Any]]
    partition_id: str = "train"
    extra_info: dict[str, Any] = field(default_factory=lambda: {"temperature": 0.7})


@dataclass
class Queue:
    """Rows by key; what a row has none of is left out, as in the real queue."""

    rows: dict[str, dict[str, Any]]
    asked: list[tuple[list[str], list[str]]] = field(default_factory=list)

    def kv_batch_get(
        self, keys: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        assert partition_id == "train"
        self.asked.append((keys, select_fields))
        rows = [self.rows[key] for key in keys]
        names = [name for name in select_fields if name in rows[0]]
        return TensorDict(
            {name: _column([row[name] for row in rows]) for name in names}
        )


def _column(values: list[Any]) -> Any:
    if not isinstance(values[0], torch.Tensor):
        return values
    return torch.nested.as_nested_tensor(values, layout=torch.jagged)


def row(size: int, diff: float) -> dict[str, Any]:
    ids = torch.tensor([IMAGE] * 8 + [5] * size)
    return {
        "responses": ids,
        "response_mask": (ids != IMAGE).long(),
        "rollout_log_probs": -torch.ones(len(ids)),
        "old_log_probs": -torch.full((len(ids),), 1 + diff),
        "uid": "g",
        "extra_fields": {"round_records": [{"request_id": f"r{size}"}]},
    }


def queue() -> tuple[KVBatchMeta, Queue]:
    rows = {
        "g_0_0": row(1, 0.0),
        "pad": row(1, 9.0),
        "g_1_0": row(2, 0.5),
        "g_2_0": row(3, 0.25),
    }
    tags = [
        {"min_global_steps": n, "is_padding": key == "pad"}
        for n, key in enumerate(rows)
    ]
    return KVBatchMeta([*rows], tags), Queue(rows)


def test_rows_of_keys_without_those_that_fill_up(tmp_path: Path) -> None:
    batch, tq = queue()
    with Recorder(tmp_path) as recorder:
        recorder.step_keys(1, batch, tq)
        recorder.step_keys(0, batch, tq)
    assert recorder.errors == 0
    expected = {
        "sample_ids": ["g_0_0", "g_1_0", "g_2_0"],
        "group_ids": ["g", "g", "g"],
        "lengths": [9, 10, 11],
        "sample.min_global_steps": [0, 2, 3],
        "round.request_id": ["r1", "r2", "r3"],
        "meta.old_log_probs_source": "a pass of its own",
        "meta.sampling": {"temperature": 0.7},
        "images": None,
    }
    has(load_parquet(tmp_path / "step_0.parquet"), expected)


def test_only_the_pixels_of_the_samples_that_are_shown_leave_the_queue(
    tmp_path: Path,
) -> None:
    batch, tq = queue()
    for number, values in enumerate(tq.rows.values()):
        values["multi_modal_inputs"] = inputs(float(number))
    with Recorder(tmp_path, images=1, seed=2) as recorder:
        recorder.step_keys(0, batch, tq)
    assert recorder.errors == 0
    images = load_parquet(tmp_path / "step_0.parquet").images
    (sample_with_images,) = [sample for sample, row in enumerate(images) if row]
    assert ["multi_modal_inputs" in fields for _, fields in tq.asked] == [False, True]
    assert tq.asked[1][0] == [["g_0_0", "g_1_0", "g_2_0"][sample_with_images]]


def test_a_step_with_keys_can_be_finished(tmp_path: Path) -> None:
    batch, tq = queue()
    with Recorder(tmp_path) as recorder:
        recorder.step_keys(0, batch, tq)
        for values in tq.rows.values():
            values["advantages"] = torch.ones(len(values["responses"]))
        recorder.finish_keys(0, batch, tq)
    assert recorder.errors == 0
    advantages = load_parquet(tmp_path / "step_0.parquet").advantages
    assert advantages.tolist() == [1.0] * 30


def test_a_queue_that_fails_does_not_reach_the_trainer(tmp_path: Path) -> None:
    batch, tq = queue()
    tq.rows.clear()
    with Recorder(tmp_path) as recorder:
        recorder.step_keys(0, batch, tq)
        recorder.finish_keys(0, batch, tq)  # of nothing that was recorded
    assert recorder.errors == 1

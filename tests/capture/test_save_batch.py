from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.capture import Recorder, save_batch
from rounddiag.errors import BatchError
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import DataProto
from tests.loaders.facts import has


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "step_40.parquet"


def save_and_load(data: object, path: Path, **options: int) -> Batch:
    save_batch(data, path, **options)
    return load_parquet(path)


def test_a_data_proto_saved_or_recorded(
    proto: DataProto, path: Path, tmp_path: Path
) -> None:
    expected = {
        "lengths": [11, 12],
        "prompt_ids": [3, 4, 3, 4, 5],
        "rounds.num_tokens": [2, 1, 2, 2],
        "old_log_probs": [-0.75] * 23,
        "entropy": [0.25] * 23,
        "score.ref": [-1.0] * 23,
        "rewards": [1.0, 0.0],
        "group_ids": ["a", "b"],
        "sample.__num_turns__": [2, 4],
        "step": 40,
        "meta.sampling": {"temperature": 0.7},
        "meta.mask_source": "response_mask",
        "meta.old_log_probs_source": "a pass of its own",
    }
    has(save_and_load(proto, path), expected)
    with Recorder(tmp_path / "run") as recorder:
        recorder.step(40, proto)
    recorded = {"num_samples": 2, "left_out": ["raw_prompt"]}
    file = tmp_path / "run" / "step_40.parquet"
    has(load_parquet(file), {**expected, "meta.capture": recorded})


def nested(*sizes: int, value: float | None = None) -> torch.Tensor:
    parts = [
        torch.arange(size) if value is None else torch.full((size,), value)
        for size in sizes
    ]
    return torch.nested.as_nested_tensor(parts, layout=torch.jagged)


def test_nested_tensors_as_in_a_tensordict_of_verl(path: Path) -> None:
    class TensorDict(dict[str, Any]):
        batch_size = torch.Size([2])

    fields = TensorDict(
        prompts=nested(2, 1),
        responses=nested(3, 2),
        response_mask=nested(3, 2, value=1),
        rollout_log_probs=nested(3, 2, value=-0.5),
        old_log_probs=nested(3, 2, value=-0.75),
        session_id=[0, 1],
        extra_fields=[{}, {}],
    )
    expected = {
        "response_ids": [0, 1, 2, 0, 1],
        "lengths": [3, 2],
        "sample_columns": {"session_id": [0, 1]},
        "meta.old_log_probs_source": "a pass of its own",
    }
    has(save_and_load(fields, path), expected)


def test_arrays_rewards_and_a_step_of_a_mapping(path: Path) -> None:
    ones = np.ones((2, 2), dtype=np.float32)
    fields = {
        "responses": np.array([[1, 2], [3, 4]]),
        "response_mask": ones,
        "rollout_log_probs": list(-ones),
        "old_log_probs": -ones,
        "rewards": torch.tensor([0.5, 1.0]),
        "row": torch.tensor([4, 2]),
    }
    expected = {"rewards": [0.5, 1.0], "sample_columns": {"row": [4, 2]}, "step": 7}
    batch = save_and_load(fields, path, step=7)
    has(batch, {**expected, "meta.old_log_probs_source": "unknown"})


def test_pixels_of_the_whole_batch_are_not_touched(
    proto: DataProto, path: Path
) -> None:
    class Untouchable(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, *_: Any, **__: Any) -> object:
            assert func is torch.Tensor.dim, func
            return 2

    proto.batch["pixel_values"] = torch.zeros(2, 2).as_subclass(Untouchable)
    for row in proto.non_tensor_batch["multi_modal_inputs"]:
        row["pixel_values"] = row["pixel_values"].as_subclass(Untouchable)
    assert save_and_load(proto, path, images=0).images is None


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            "old_log_probs",
            "DataProto: `old_log_probs`: expected the log-probabilities of the training"
            " engine; found only ",
        ),
        ("responses", "DataProto: `responses`: expected the token ids of responses; "),
    ],
)
def test_a_missing_field_is_named_and_nothing_is_written(
    proto: DataProto, path: Path, missing: str, message: str
) -> None:
    del proto.batch[missing]
    with pytest.raises(BatchError, match=f"^{re.escape(message)}"):
        save_batch(proto, path)
    assert not path.exists()


def test_what_is_no_batch(path: Path) -> None:
    message = (
        "expected a DataProto, a TensorDict or a mapping of str to Tensor; found a"
        " list. Pass the trainer's batch itself."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        save_batch([torch.zeros(2)], path)

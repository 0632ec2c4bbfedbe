from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rounddiag.batch import Batch
from rounddiag.capture import save_batch
from rounddiag.errors import BatchError
from rounddiag.loaders.parquet import load_parquet
from tests.capture.conftest import DataProto


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "step_40.parquet"


def save_and_load(data: object, path: Path, **options: int) -> Batch:
    save_batch(data, path, **options)
    return load_parquet(path)


def test_a_data_proto(proto: DataProto, path: Path) -> None:
    batch = save_and_load(proto, path)
    assert batch.lengths.tolist() == [11, 12]
    assert batch.prompt_ids.tolist() == [3, 4, 3, 4, 5]
    assert batch.rounds.num_tokens.tolist() == [2, 1, 2, 2]
    assert batch.log_probs("old").tolist() == [-0.75] * 23
    assert batch.scores["ref"].tolist() == [-1.0] * 23
    assert batch.rewards.tolist() == [1.0, 0.0]
    assert batch.group_ids == ("a", "b")
    assert batch.sample_columns["__num_turns__"].tolist() == [2, 4]
    assert batch.step == 40
    assert batch.meta["sampling"] == {"temperature": 0.7}
    assert batch.meta["mask_source"] == "response_mask"
    assert batch.meta["old_log_probs_source"] == "a pass of its own"


def test_a_mapping_of_tensors_on_any_device(
    proto: DataProto, path: Path, device: torch.device
) -> None:
    fields = {name: value.to(device) for name, value in proto.batch.items()}
    fields["old_log_probs"] = fields["old_log_probs"].bfloat16().requires_grad_()
    batch = save_and_load({**fields, "uid": ["a", "b"]}, path, step=7)
    assert batch.lengths.tolist() == [11, 12]
    assert batch.log_probs("old").tolist() == [-0.75] * 23
    assert batch.group_ids == ("a", "b")
    assert batch.step == 7
    assert batch.meta["old_log_probs_source"] == "unknown"


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
    batch = save_and_load(fields, path)
    assert batch.require_ids().tolist() == [0, 1, 2, 0, 1]
    assert batch.lengths.tolist() == [3, 2]
    assert {k: v.tolist() for k, v in batch.sample_columns.items()} == {
        "session_id": [0, 1]
    }
    assert batch.meta["old_log_probs_source"] == "a pass of its own"


def test_arrays_and_rewards_of_a_mapping(path: Path) -> None:
    ones = np.ones((2, 2), dtype=np.float32)
    fields = {
        "responses": np.array([[1, 2], [3, 4]]),
        "response_mask": ones,
        "rollout_log_probs": list(-ones),
        "old_log_probs": -ones,
        "rewards": torch.tensor([0.5, 1.0]),
        "row": torch.tensor([4, 2]),
    }
    batch = save_and_load(fields, path)
    assert batch.rewards.tolist() == [0.5, 1.0]
    assert {k: v.tolist() for k, v in batch.sample_columns.items()} == {"row": [4, 2]}


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


def test_a_field_of_another_shape_is_named(proto: DataProto, path: Path) -> None:
    proto.batch["old_log_probs"] = torch.zeros(2, 11)
    message = "`old_log_probs`: expected 2 rows of 12 positions; found 2 rows of 11"
    with pytest.raises(BatchError, match=re.escape(message)):
        save_batch(proto, path)


def test_what_is_no_batch(path: Path) -> None:
    message = (
        "expected a DataProto, a TensorDict or a mapping of str to Tensor; found a"
        " list. Pass the trainer's batch itself."
    )
    with pytest.raises(BatchError, match=f"^{re.escape(message)}$"):
        save_batch([torch.zeros(2)], path)

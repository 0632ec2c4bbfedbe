"""Writes files as SkyRL does, without SkyRL: for the cases no real file is kept of.

That these files have SkyRL's layout is checked against the real ones in `tests/data`.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch

_HOME = "skyrl.backends.skyrl_train.training_batch"


def _rebuild_tensor_batch(*_: object) -> None:
    """Stand for SkyRL's function, by name."""


class TrainingInputBatch:
    """Pickles as SkyRL's class does."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_tensor_batch, (TrainingInputBatch, self.state)


def stored(value: Any) -> Any:
    """Return a field as SkyRL stores it; what is no tensor as it is."""
    if isinstance(value, list):
        return {"format": "tensor_list", "items": [stored(item) for item in value]}
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype == torch.bfloat16:
        buffer = io.BytesIO()
        torch.save(value, buffer)
        return {"format": "torch", "data": buffer.getvalue()}
    array = value.numpy()
    return {
        "format": "numpy",
        "data": array.tobytes(),
        "shape": array.shape,
        "dtype": str(array.dtype),
    }


def write(
    path: Path, fields: Mapping[str, Any], metadata: dict[str, Any] | None = None
) -> Path:
    """Write a batch and return its path."""
    state = {
        "batch_dict": {name: stored(value) for name, value in fields.items()},
        "batch_size": 2,
        "device": torch.device("cpu"),
        "metadata": metadata,
    }
    return write_state(path, state)


def write_state(path: Path, state: dict[str, Any]) -> Path:
    """Write a batch of any state and return its path."""
    names = [_HOME[:end] for end, mark in enumerate(f"{_HOME}.") if mark == "."]
    modules = {name: ModuleType(name) for name in names}
    for thing in (TrainingInputBatch, _rebuild_tensor_batch):
        setattr(modules[_HOME], thing.__name__, thing)
        thing.__module__ = _HOME
    with patch.dict(sys.modules, modules):
        path.write_bytes(pickle.dumps(TrainingInputBatch(state)))
    return path


def small_batch() -> dict[str, Any]:
    """Return the fields of two samples that can be checked by hand.

    Sample 0 has rounds of one token around an observation, sample 1 one round of two.
    """
    return {
        "sequences": torch.tensor([[1, 2, 10, 3, 11], [0, 1, 2, 12, 13]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]),
        "response_mask": torch.tensor([[1, 1, 1], [0, 1, 1]]),
        "loss_mask": torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]),
        "rollout_logprobs": torch.tensor([[-1.0, 0.0, -2.0], [0.0, -3.0, -4.0]]),
        "action_log_probs": torch.tensor([[-1.5, -9.0, -2.0], [-8.0, -3.0, -4.5]]),
        "values": None,
    }

"""Writes files as verl does, without verl: for the cases no real file is kept of.

That these files have verl's layout is checked against the real ones in `tests/data`.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from tests.loaders.values import objects


class DataProto:
    """Pickles as `verl.protocol.DataProto` does: as a state of three parts."""

    def __init__(self, *state: object) -> None:
        self.state = state

    def __getstate__(self) -> tuple[object, ...]:
        return self.state


def _rebuild_tensordict_files_consolidated(*_: object) -> None:
    """Stand for tensordict's function, by name."""


class Consolidated:
    """Pickles as a consolidated TensorDict does."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.leaves: dict[str, tuple[object, ...]] = {}
        parts, stop = [], 0
        for name, tensor in tensors.items():
            raw = tensor.contiguous().reshape(-1).view(torch.uint8)
            pad = -len(raw) % 8
            start, stop = stop, stop + len(raw) + pad
            leaf = (str(tensor.dtype), list(tensor.shape), start, stop, pad)
            self.leaves[name] = leaf
            parts += [raw, raw.new_zeros(pad)]
        self.storage = torch.cat([*parts, torch.empty(0, dtype=torch.uint8)])

    def __reduce__(self) -> tuple[object, ...]:
        metadata = {"cls": "TensorDict", "non_tensors": {}, "leaves": self.leaves}
        return _rebuild_tensordict_files_consolidated, (metadata, self.storage)


def _dotted(module: str, name: str) -> str:
    return f"{module}.{name}"


@contextmanager
def borrowed_names(home: str = "verl.protocol") -> Iterator[None]:
    """Let the stand-ins be pickled under the names of the real ones."""
    homes = {
        home: DataProto,
        "tensordict._reductions": _rebuild_tensordict_files_consolidated,
    }
    names = [part for name in homes for part in accumulate(name.split("."), _dotted)]
    kept = {name: sys.modules.get(name) for name in names}
    try:
        for name in names:
            sys.modules[name] = ModuleType(name)
        for name, thing in homes.items():
            setattr(sys.modules[name], thing.__name__, thing)
            thing.__module__ = name
        yield
    finally:
        sys.modules.update({name: old for name, old in kept.items() if old})
        for name in [name for name, old in kept.items() if old is None]:
            del sys.modules[name]


def pickled(
    tensors: Mapping[str, Tensor],
    columns: Mapping[str, Any] | None = None,
    info: Mapping[str, Any] | None = None,
    protocol: int = 4,
) -> bytes:
    """Return the pickle of a DataProto in the default serialisation."""
    with borrowed_names():
        buffer = io.BytesIO()
        torch.save(Consolidated(tensors), buffer)
        others = {name: objects(*values) for name, values in (columns or {}).items()}
        data = DataProto(buffer.getvalue(), others, dict(info or {}))
        return pickle.dumps(data, protocol=protocol)


def roll_pickled(
    tensors: Mapping[str, Tensor], columns: Mapping[str, Any] | None = None
) -> bytes:
    """Return the pickle of ROLL's DataProto: tensors in a `BytesIO`, and four parts."""
    with borrowed_names("roll.distributed.scheduler.protocol"):
        buffer = io.BytesIO()
        torch.save(Consolidated(tensors), buffer)
        others = {name: objects(*values) for name, values in (columns or {}).items()}
        return pickle.dumps(DataProto(buffer, others, None, {"global_step": 7}))


def write(
    path: Path,
    tensors: Mapping[str, Tensor],
    columns: Mapping[str, Any] | None = None,
    info: Mapping[str, Any] | None = None,
) -> Path:
    """Write a DataProto and return its path."""
    path.write_bytes(pickled(tensors, columns, info))
    return path


def small_batch() -> dict[str, Tensor]:
    """Return the fields of two samples that can be checked by hand.

    Sample 0 has rounds of two and one tokens around an observation, sample 1 one round
    of one token and padding on both sides.
    """
    return {
        "prompts": torch.tensor([[1, 2], [0, 3]]),
        "responses": torch.tensor([[5, 6, 7, 8], [9, 0, 0, 0]]),
        "response_mask": torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1, 1], [0, 1, 1, 0, 0, 0]]),
        "rollout_log_probs": torch.tensor([[-1.0, -2.0, 0.0, -1.0], [-4.0, 0, 0, 0]]),
        "old_log_probs": torch.tensor([[-1.5, -2.0, -9.0, -0.5], [-3.0, 0, 0, 0]]),
    }

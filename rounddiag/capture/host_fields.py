"""Tensors, wherever a trainer holds them, as tensors of the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch


class HostFields(Mapping[str, Any]):
    """Tensors that come to the host when they are looked up, and only then."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 tensor or rows
        value = self._fields[name]
        if isinstance(value, torch.Tensor):
            return value.detach().cpu()
        if isinstance(value, np.ndarray) and value.dtype != object:
            return _from_array(value)
        return [_row(row) for row in value]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _row(row: torch.Tensor | np.ndarray[Any, Any]) -> torch.Tensor:
    return _from_array(row) if isinstance(row, np.ndarray) else row.detach().cpu()


def _from_array(array: np.ndarray[Any, Any]) -> torch.Tensor:
    # Ray's object store gives arrays that cannot be written to; torch warns of those.
    return torch.from_numpy(array if array.flags.writeable else array.copy())

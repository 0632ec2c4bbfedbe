"""Fields of what a trainer holds, by name and without a copy of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import host_array

_INPUTS = "multi_modal_inputs"
# How verl, whose classes these are, comes by `old_log_probs`.
_VERL = {"old_log_probs_source": "a pass of its own"}


class HostFields(Mapping[str, Any]):
    """Tensors that come to the host when they are looked up, and only then."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 tensor or rows
        value = self._fields[name]
        if isinstance(value, torch.Tensor):
            return value.detach().cpu()
        if isinstance(value, np.ndarray) and value.dtype != object:
            return torch.as_tensor(value)
        return [torch.as_tensor(row).detach().cpu() for row in value]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a trainer holds, divided as `batch_from_fields` wants it.

    Attributes
    ----------
    fields : HostFields
        Rows of tensors.
    columns : dict of str to sequence
        One value a sample.
    info : dict
        One value for all.
    inputs : sequence of mapping
        What the model's processor made of the pictures, one a sample; may be empty.
    source : str
        What it was, for messages.
    """

    fields: HostFields
    columns: dict[str, Any]
    info: dict[str, Any]
    inputs: Sequence[Any]
    source: str


def parts_of(data: Any) -> Parts:  # noqa: ANN401 verl's classes need not be there
    """Divide a DataProto, a TensorDict or a mapping.

    Raises
    ------
    BatchError
        If it is none of them.
    """
    source = type(data).__name__
    if hasattr(data, "non_tensor_batch"):
        values = {**_items(data.batch), **(data.non_tensor_batch or {})}
        info = {**_VERL, **(data.meta_info or {})}
    elif hasattr(data, "keys"):
        values = _items(data)
        info = {**_VERL} if hasattr(data, "batch_size") else {}
    else:
        raise BatchError.build(
            expected="a DataProto, a TensorDict or a mapping of str to Tensor",
            found=f"a {source}",
            advice="Pass the batch as the trainer has it.",
        )
    inputs = values.pop(_INPUTS, ())
    scalars = {k: v for k, v in values.items() if isinstance(v, str | int | float)}
    rows = {k: v for k, v in values.items() if _is_rows(v)}
    others = {k: v for k, v in values.items() if k not in {*scalars, *rows}}
    return Parts(
        fields=HostFields(rows),
        columns={k: _column(v) for k, v in others.items() if hasattr(v, "__len__")},
        info={**scalars, **info},
        inputs=inputs,
        source=source,
    )


def _items(data: Any) -> dict[str, Any]:  # noqa: ANN401 as above
    # A TensorDict is iterated over its rows, not over its keys.
    return {} if data is None else {str(key): data[key] for key in data.keys()}  # noqa: SIM118


def _is_rows(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dim() > 1
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.ndim > 1
    if not isinstance(value, list | tuple | np.ndarray) or len(value) == 0:
        return False
    return all(isinstance(row, torch.Tensor | np.ndarray) for row in value)


def _column(value: Any) -> Any:  # noqa: ANN401 whatever has one value a sample
    if isinstance(value, torch.Tensor):
        return host_array(value)
    return value if isinstance(value, np.ndarray) else list(value)

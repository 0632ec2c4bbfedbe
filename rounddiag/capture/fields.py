"""Fields of what a trainer holds, by name and without a copy of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.capture.host_fields import HostFields
from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import host_array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_INPUTS = "multi_modal_inputs"
_RECORDS, _ROLLOUT_IDS = "round_records", "rollout_ids"
# How verl, whose classes these are, comes by `old_log_probs`.
_VERL = {"old_log_probs_source": "a pass of its own"}


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a trainer holds, divided as `batch_from_fields` wants it.

    Attributes
    ----------
    fields : mapping of str to rows
        Rows of tensors.
    columns : dict of str to sequence
        One value a sample.
    info : dict
        One value for all.
    inputs : sequence of mapping
        What the model's processor made of the pictures, one a sample; may be empty.
    source : str
        What it was, for messages.
    round_records : sequence, optional
        A list of dictionaries a sample, one a generation: see `round_record`.
    rollout_ids : tuple of Tensor, optional
        The sampler's own ids of each response, copied.
    sample_ids : sequence of str, optional
        A name for each sample.
    left_out : tuple of str
        What there was and is not held.
    """

    fields: Mapping[str, Any]
    columns: dict[str, Any]
    info: dict[str, Any]
    inputs: Sequence[Any]
    source: str
    round_records: Sequence[Any] | None = None
    rollout_ids: tuple[torch.Tensor, ...] | None = None
    sample_ids: Sequence[str] | None = None
    left_out: tuple[str, ...] = ()


def parts_of(data: Any, **more: Any) -> Parts:  # noqa: ANN401 verl's classes need not be there
    """Divide a DataProto, a TensorDict or a mapping.

    Parameters
    ----------
    data : DataProto, TensorDict or mapping
    **more
        Fields that it does not have itself.

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
    values.update(more)
    inputs = values.pop(_INPUTS, ())
    records, rollout_ids = _records(values), values.pop(_ROLLOUT_IDS, None)
    scalars = {k: v for k, v in values.items() if isinstance(v, str | int | float)}
    rows = {k: v for k, v in values.items() if _is_rows(v)}
    others = {k: v for k, v in values.items() if k not in {*scalars, *rows}}
    return Parts(
        fields=HostFields(rows),
        columns={k: _column(v) for k, v in others.items() if hasattr(v, "__len__")},
        info={**scalars, **info},
        inputs=inputs,
        source=source,
        round_records=records,
        rollout_ids=None if rollout_ids is None else tuple(map(_ids, rollout_ids)),
    )


def _records(values: dict[str, Any]) -> list[Any] | None:
    """Take the records out: a field of their own (V0), or in `extra_fields` (V1)."""
    if _RECORDS in values:
        return list(values.pop(_RECORDS))
    rows = values.get("extra_fields")
    if rows is None or not any(isinstance(r, dict) and _RECORDS in r for r in rows):
        return None
    return [row.get(_RECORDS) if isinstance(row, dict) else None for row in rows]


def _ids(row: Any) -> torch.Tensor:  # noqa: ANN401 a list, an array or a tensor
    if isinstance(row, torch.Tensor):
        return row.detach().to("cpu", torch.int64, copy=True)
    return torch.from_numpy(np.array(row, dtype=np.int64))


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

"""TrainerBatch: the fields a trainer holds, found by name and not copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.columns import stored_array

_IMAGE_INPUTS = "multi_modal_inputs"
_RECORDS, _ROLLOUT_IDS = "round_records", "rollout_ids"
_PADDING = "is_padding"
# How verl, which defines these classes, computes `old_log_probs`.
_VERL_INFO = {"old_log_probs_source": "a pass of its own"}

# What to ask a TransferQueue for. It leaves out the fields that its rows lack.
QUEUE_FIELDS = [
    *("prompts", "responses", "response_mask", "rollout_log_probs", "old_log_probs"),
    *("ref_log_prob", "entropy", "rm_scores", "rollout_ids"),
    *("uid", "session_id", "num_turns", "data_source", "agent_name", "extra_fields"),
]
LATE_QUEUE_FIELDS = [
    *("responses", "response_mask", "rm_scores", "ref_log_prob", "advantages"),
    "rollout_is_weights",
]


@dataclass(frozen=True, kw_only=True)
class TrainerBatch:
    """A trainer's batch, divided into the arguments of `batch_from_fields`.

    Attributes
    ----------
    fields: Tensors and rows of tensors.
    columns: One value per sample.
    info: One value for the whole batch.
    image_inputs: The image processor's output, one mapping per sample; may be empty.
    source: Name of the trainer's class, for messages.
    round_records: One list of dictionaries per sample, one dictionary per call of the
        engine: see `round_record`.
    rollout_ids: The sampler's own token ids of each response, copied.
    sample_ids: A name for each sample.
    left_out: Names of fields and columns that were not copied.
    """

    fields: Mapping[str, Any]
    columns: dict[str, Any]
    info: dict[str, Any]
    image_inputs: Sequence[Any]
    source: str
    round_records: Sequence[Any] | None = None
    rollout_ids: tuple[torch.Tensor, ...] | None = None
    sample_ids: Sequence[str] | None = None
    left_out: tuple[str, ...] = ()


def read_trainer_batch(data: Any, **more: Any) -> TrainerBatch:  # noqa: ANN401 verl's classes need not be installed
    """Divide a DataProto, a TensorDict or a mapping."""
    source = type(data).__name__
    if hasattr(data, "non_tensor_batch"):
        values = {**_items(data.batch), **(data.non_tensor_batch or {})}
        info = {**_VERL_INFO, **(data.meta_info or {})}
    elif hasattr(data, "keys"):
        values = _items(data)
        info = {**_VERL_INFO} if hasattr(data, "batch_size") else {}
    else:
        raise BatchError.build(
            expected="a DataProto, a TensorDict or a mapping of str to Tensor",
            found=f"a {source}",
            advice="Pass the trainer's batch itself.",
        )
    values.update(more)
    image_inputs = values.pop(_IMAGE_INPUTS, ())
    records, rollout_ids = _pop_records(values), values.pop(_ROLLOUT_IDS, None)
    scalars = {k: v for k, v in values.items() if isinstance(v, str | int | float)}
    rows = {k: v for k, v in values.items() if _is_rows(v)}
    others = {k: v for k, v in values.items() if k not in {*scalars, *rows}}
    return TrainerBatch(
        fields=_HostFields(rows),
        columns={k: _column(v) for k, v in others.items() if hasattr(v, "__len__")},
        info={**scalars, **info},
        image_inputs=image_inputs,
        source=source,
        round_records=records,
        rollout_ids=None if rollout_ids is None else tuple(map(_ids, rollout_ids)),
    )


def _items(data: Any) -> dict[str, Any]:  # noqa: ANN401 as above
    # Iterating over a TensorDict gives its rows, not its keys.
    return {} if data is None else {str(key): data[key] for key in data.keys()}  # noqa: SIM118


def _pop_records(values: dict[str, Any]) -> list[Any] | None:
    """Take the records from a field of their own (V0) or from `extra_fields` (V1)."""
    if _RECORDS in values:
        return list(values.pop(_RECORDS))
    rows = values.get("extra_fields")
    if rows is None or not any(isinstance(r, dict) and _RECORDS in r for r in rows):
        return None
    return [row.get(_RECORDS) if isinstance(row, dict) else None for row in rows]


def _is_rows(value: object) -> bool:
    if isinstance(value, torch.Tensor):
        return value.dim() > 1
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.ndim > 1
    if not isinstance(value, list | tuple | np.ndarray) or len(value) == 0:
        return False
    return all(isinstance(row, torch.Tensor | np.ndarray) for row in value)


def _column(value: Any) -> Any:  # noqa: ANN401 any sequence with one value per sample
    if isinstance(value, torch.Tensor):
        return stored_array(value)
    return value if isinstance(value, np.ndarray) else list(value)


def _ids(row: Any) -> torch.Tensor:  # noqa: ANN401 a list, an array or a tensor
    if isinstance(row, torch.Tensor):
        return row.detach().to("cpu", torch.int64, copy=True)
    return torch.from_numpy(np.array(row, dtype=np.int64))


class _HostFields(Mapping[str, Any]):
    """Tensors that move to the host on access, one at a time."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 tensor or rows
        value = self._fields[name]
        if isinstance(value, torch.Tensor):
            return value.detach().cpu()
        if isinstance(value, np.ndarray) and value.dtype != object:
            return _from_array(value)
        return [
            _from_array(row) if isinstance(row, np.ndarray) else row.detach().cpu()
            for row in value
        ]

    def size_of(self, name: str) -> tuple[int, int] | None:
        """Return how many rows and values a tensor has, which does not move for it."""
        value = self._fields[name]
        is_padded = isinstance(value, torch.Tensor) and not value.is_nested
        return (len(value), value.numel()) if is_padded else None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _from_array(array: np.ndarray[Any, Any]) -> torch.Tensor:
    # Ray's object store returns read-only arrays, about which torch warns.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def fetch_queued_batch(batch: Any, tq: Any, fields: Sequence[str]) -> TrainerBatch:  # noqa: ANN401 a KVBatchMeta and the module transfer_queue, which need not be installed
    """Fetch fields of the rows of a KVBatchMeta, without its padding rows.

    Tags become columns, keys become sample ids.
    """
    keys = _keys(batch)
    tags = [tag for tag in batch.tags if not tag.get(_PADDING)]
    rows = tq.kv_batch_get(keys, batch.partition_id, select_fields=fields)
    fetched = read_trainer_batch(rows)
    names = dict.fromkeys(name for tag in tags for name in tag if name != _PADDING)
    columns = {name: [tag.get(name) for tag in tags] for name in names}
    return replace(
        fetched,
        columns={**columns, **fetched.columns},
        info={**fetched.info, **(batch.extra_info or {})},
        sample_ids=keys,
    )


def fetch_queued_image_inputs(
    batch: Any,  # noqa: ANN401 as above
    tq: Any,  # noqa: ANN401 as above
    samples: Sequence[int],
) -> Sequence[Any]:
    """Fetch the image processor's output of some samples, None for those without."""
    keys = _keys(batch)
    chosen = [keys[sample] for sample in samples]
    rows = tq.kv_batch_get(chosen, batch.partition_id, select_fields=[_IMAGE_INPUTS])
    return read_trainer_batch(rows).image_inputs or [None] * len(samples)


def _keys(batch: Any) -> list[str]:  # noqa: ANN401 as above
    pairs = zip(batch.keys, batch.tags, strict=True)
    return [key for key, tag in pairs if not tag.get(_PADDING)]

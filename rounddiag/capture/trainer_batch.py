"""Fields of what a trainer holds, by name and without a copy of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.capture.sampling import Order, held_pictures, num_held_bytes, order_of
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.fields.mapping import SCORE, plain_columns
from rounddiag.loaders.fields.reader import FieldReader
from rounddiag.loaders.parquet.columns import to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from rounddiag.capture.options import Options
    from rounddiag.capture.sampling import Pictures
    from rounddiag.loaders.lazy.arrays import Ragged

    LookUp = Callable[[Sequence[int]], Sequence[Any]]


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


_INPUTS_FIELDS = "multi_modal_inputs"
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
    inputs = values.pop(_INPUTS_FIELDS, ())
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
        return to_numpy(value)
    return value if isinstance(value, np.ndarray) else list(value)


# What a row has none of, the queue leaves out.
FIELDS = [
    *("prompts", "responses", "response_mask", "rollout_log_probs", "old_log_probs"),
    *("ref_log_prob", "entropy", "rm_scores", "rollout_ids"),
    *("uid", "session_id", "num_turns", "data_source", "agent_name", "extra_fields"),
]
LATER = [
    *("responses", "response_mask", "rm_scores", "ref_log_prob", "advantages"),
    "rollout_is_weights",
]
_INPUTS_TRANSFER_QUEUE, _PADDING = "multi_modal_inputs", "is_padding"


def queued_parts(batch: Any, tq: Any, fields: Sequence[str]) -> Parts:  # noqa: ANN401 a KVBatchMeta and the module transfer_queue, which need not be installed
    """Fetch fields of the rows of a batch, those excepted that only fill it up.

    Tags become columns, and keys the samples' names.
    """
    keys = _keys(batch)
    tags = [tag for tag in batch.tags if not tag.get(_PADDING)]
    parts = parts_of(tq.kv_batch_get(keys, batch.partition_id, select_fields=fields))
    names = dict.fromkeys(name for tag in tags for name in tag if name != _PADDING)
    columns = {name: [tag.get(name) for tag in tags] for name in names}
    return replace(
        parts,
        columns={**columns, **parts.columns},
        info={**parts.info, **(batch.extra_info or {})},
        sample_ids=keys,
    )


def queued_inputs(batch: Any, tq: Any, samples: Sequence[int]) -> Sequence[Any]:  # noqa: ANN401 as above
    """Fetch what the model's processor made of the pictures of some samples."""
    keys = _keys(batch)
    chosen = [keys[sample] for sample in samples]
    rows = tq.kv_batch_get(
        chosen, batch.partition_id, select_fields=[_INPUTS_TRANSFER_QUEUE]
    )
    return parts_of(rows).inputs or [None] * len(samples)


def _keys(batch: Any) -> list[str]:  # noqa: ANN401 as above
    pairs = zip(batch.keys, batch.tags, strict=True)
    return [key for key, tag in pairs if not tag.get(_PADDING)]


WEIGHTS = "rollout_is_weights"
# One value a token each. The position ids of a vision model have four, and would cost
# as much as the rest: `save_batch` keeps them.
_TAKEN = {
    *("responses", "response_ids", "prompts", "prompt_ids", "round_ids"),
    *("rollout_log_probs", "old_log_probs", "entropys", "entropy", "advantages"),
    *("response_mask", "loss_mask", "attention_mask"),
    *("token_level_scores", "rm_scores", WEIGHTS),
}


def held(parts: Parts, *, without: Collection[str] = ()) -> Parts:
    """Copy what a file of every sample needs to host memory.

    Parameters
    ----------
    parts : Parts
    without : collection of str
        Fields that are held already.

    Raises
    ------
    LoadError
        If a field has no rows, or the responses are missing.
    """
    reader = FieldReader(parts.fields, parts.source)
    names = [name for name in reader.names if name not in without]
    found = {name: _rows(reader, name) for name in names}
    fields = {name: _copy(row) for name, row in found.items() if row is not None}
    columns = plain_columns(parts.columns, reader.num_samples)
    others = (name for name in (*names, *parts.columns) if name not in fields)
    return replace(
        parts,
        fields=fields,
        columns={name: values.copy() for name, values in columns.items()},
        info={k: v for k, v in parts.info.items() if isinstance(v, str | int | float)},
        inputs=(),
        round_records=deepcopy(parts.round_records),
        left_out=tuple(name for name in others if name not in columns),
    )


def _rows(reader: FieldReader, name: str) -> Ragged | None:
    """Return a field that is held: more log-probabilities where they are of tokens."""
    if name in _TAKEN:
        return reader.rows(name)
    if not SCORE.fullmatch(name):
        return None
    try:
        found = reader.rows(name)
    except LoadError:
        return None
    responses = reader.tokens
    fits = found is not None and torch.equal(found.offsets, responses.offsets)
    return found if fits else None


def _copy(found: Ragged) -> Ragged:
    values = torch.from_numpy(to_numpy(found.values))
    # What is on the host already, in the type that a file has, is still the trainer's.
    is_shared = values.data_ptr() == found.values.data_ptr()
    return replace(
        found,
        values=values.clone() if is_shared else values,
        offsets=found.offsets.to("cpu", copy=True),
    )


def finished(known: Parts, later: Parts) -> Parts:
    """Add to what is held of a step what the trainer holds at its end.

    The `response_mask` of then is the mask after rejection. Weights become a score: the
    log-probability that, over the sampler's, gives the weight.

    Parameters
    ----------
    known : Parts
        From `held`.
    later : Parts
        From `parts_of`, of the same samples in the same order.

    Raises
    ------
    BatchError
        If the responses are not as long as those that are held.
    """
    ids = "responses" if "responses" in known.fields else "response_ids"
    new = held(later, without={*known.fields} - {ids, "response_mask"})
    fields = dict(new.fields)
    if not torch.equal(fields.pop(ids).values, known.fields[ids].values):
        raise BatchError.build(
            key="responses",
            expected="those of the step's first call, in the same order",
            found="others",
            advice="Call `finish` before the batch is divided or balanced again.",
        )
    if "response_mask" in fields:
        fields["loss_mask"] = fields.pop("response_mask")
    if WEIGHTS in fields:
        fields["rollout_is_log_probs"] = _weighted(known, fields.pop(WEIGHTS))
    return replace(
        known,
        fields={**known.fields, **fields},
        columns={**new.columns, **known.columns},
        left_out=tuple(dict.fromkeys((*known.left_out, *new.left_out))),
    )


def _weighted(known: Parts, weights: Ragged) -> Ragged:
    rollout: Ragged = known.fields["rollout_log_probs"]
    mask, _ = FieldReader(known.fields, known.source).mask()
    weighted = rollout.values + weights.values.log()
    return replace(rollout, values=torch.where(mask != 0, weighted, rollout.values))


_ROOM = 1 << 30  # bytes of a step's pixels that are copied at most


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Copies of a step's columns.

    Attributes
    ----------
    step : int
    parts : Parts
        From `held`.
    seed : tuple of int
        What the random part is drawn from.
    order : Order or None
        The samples' order, where it was needed on the trainer's thread.
    pictures : mapping of int to tuple of PatchScreenshot
        Copies of the pictures of some samples.
    num_without_room : int
        Samples that were picked, and whose pictures were too many to copy.
    """

    step: int
    parts: Parts
    seed: tuple[int, int]
    order: Order | None = None
    pictures: Mapping[int, Pictures] = field(default_factory=dict)
    num_without_room: int = 0


def take(step: int, parts: Parts, options: Options, look_up: LookUp | None) -> Snapshot:
    """Copy what the file of a step needs.

    Parameters
    ----------
    step : int
    parts : Parts
        From `parts_of`.
    options : Options
    look_up : callable or None
        Gives the `multi_modal_inputs` of the samples that are shown; asked once.

    Raises
    ------
    LoadError
        If the fields are not those of a batch.
    """
    seed = (options.seed, abs(int(step)))
    taken = Snapshot(step=int(step), parts=held(parts), seed=seed)
    if look_up is None or options.images == 0:
        return taken
    return _with_pictures(taken, look_up, options.images)


def _with_pictures(taken: Snapshot, look_up: LookUp, images: int) -> Snapshot:
    order = order_of(taken.parts, taken.seed)
    shown = [*order.pick(images)]
    pictures, room = {}, _ROOM
    for sample, row in zip(shown, look_up(shown), strict=True):
        copies = held_pictures(row, room)
        if copies is not None:
            pictures[sample] = copies
            room -= sum(map(num_held_bytes, copies))
    left_out = len(shown) - len(pictures)
    return replace(taken, order=order, pictures=pictures, num_without_room=left_out)

"""Snapshot: the copy of a batch in host memory, which outlives the trainer's.

`join_parts` joins the batches of one step, as verl's `separate_async` has several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

from rounddiag.capture.options import Options
from rounddiag.capture.sampling import (
    SampleOrder,
    Screenshots,
    copy_screenshots,
    mean_abs_diffs,
    num_copied_bytes,
    order_samples,
)
from rounddiag.capture.trainer_batch import TrainerBatch
from rounddiag.columns.sources import Ragged
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.field_batch import weighted_log_probs
from rounddiag.loaders.field_reader import FieldReader
from rounddiag.loaders.fields import SCORE
from rounddiag.loaders.parquet.columns import stored_array
from rounddiag.loaders.plain_columns import select_plain_columns

ReadImageInputs = Callable[[Sequence[int]], Sequence[Any]]


_WEIGHTS = "rollout_is_weights"
# Fields with one value per token. Position ids are left out: a vision model has four
# rows of them, as much as all the rest together. `save_batch` keeps them.
_COPIED_FIELDS = {
    *("responses", "response_ids", "prompts", "prompt_ids", "round_ids"),
    *("rollout_log_probs", "old_log_probs", "entropys", "entropy", "advantages"),
    *("response_mask", "loss_mask", "attention_mask"),
    *("token_level_scores", "rm_scores", _WEIGHTS),
}
_MAX_PIXEL_BYTES = 1 << 30  # per step


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The copy of a batch, which is a whole step or a part of one.

    Attributes
    ----------
    batch: From `copy_to_host`.
    seed: Seed of the random sample.
    order: The order of the samples, where screenshots needed it already.
    screenshots: Copies of the screenshots of some samples.
    num_without_room: Number of picked samples whose screenshots exceeded the memory
        limit.
    weights: Which were sent and received until now, as `checks.weights` has them.
    """

    step: int
    batch: TrainerBatch
    seed: tuple[int, int]
    order: SampleOrder | None = None
    screenshots: Mapping[int, Screenshots] = field(default_factory=dict)
    num_without_room: int = 0
    weights: Mapping[str, Any] = field(default_factory=dict)


def take_snapshot(
    step: int,
    batch: TrainerBatch,
    options: Options,
    read_image_inputs: ReadImageInputs | None,
) -> Snapshot:
    """Copy what the file of a step needs."""
    seed = (options.seed, abs(int(step)))
    snapshot = Snapshot(step=int(step), batch=copy_to_host(batch), seed=seed)
    if read_image_inputs is None or options.images == 0:
        return snapshot
    return _with_screenshots(snapshot, read_image_inputs, options)


def _with_screenshots(
    snapshot: Snapshot, read_image_inputs: ReadImageInputs, options: Options
) -> Snapshot:
    order = order_samples(snapshot.batch, snapshot.seed)
    samples = [*order.first(options.max_samples).pick(options.images)]
    screenshots, room = {}, _MAX_PIXEL_BYTES
    for sample, row in zip(samples, read_image_inputs(samples), strict=True):
        copies = copy_screenshots(row, room)
        if copies is not None:
            screenshots[sample] = copies
            room -= sum(map(num_copied_bytes, copies))
    return replace(
        snapshot,
        order=order,
        screenshots=screenshots,
        num_without_room=len(samples) - len(screenshots),
    )


def copy_to_host(batch: TrainerBatch, *, skip: Collection[str] = ()) -> TrainerBatch:
    """Copy the per-token fields and plain columns of all samples to host memory."""
    reader = FieldReader(batch.fields, batch.source)
    names = [name for name in reader.names if name not in skip]
    rows = {name: _rows(reader, name) for name in names}
    fields = {name: _copy(row) for name, row in rows.items() if row is not None}
    columns = select_plain_columns(batch.columns, reader.num_samples)
    others = (name for name in (*names, *batch.columns) if name not in fields)
    return replace(
        batch,
        fields=fields,
        columns={name: values.copy() for name, values in columns.items()},
        info={k: v for k, v in batch.info.items() if isinstance(v, str | int | float)},
        image_inputs=(),
        round_records=deepcopy(batch.round_records),
        left_out=tuple(name for name in others if name not in columns),
    )


def _rows(reader: FieldReader, name: str) -> Ragged | None:
    """Read a field that is copied; further log-probs only where they fit the tokens."""
    if name in _COPIED_FIELDS:
        return reader.rows(name)
    if not SCORE.fullmatch(name):
        return None
    try:
        rows = reader.rows(name)
    except LoadError:
        return None
    offsets = reader.tokens.offsets
    fits = rows is not None and torch.equal(rows.offsets, offsets)
    return rows if fits else None


def _copy(rows: Ragged) -> Ragged:
    values = torch.from_numpy(stored_array(rows.values))
    # Without a transfer or a change of dtype this is still the trainer's memory.
    is_shared = values.data_ptr() == rows.values.data_ptr()
    return replace(
        rows,
        values=values.clone() if is_shared else values,
        offsets=rows.offsets.to("cpu", copy=True),
    )


def merge_late_fields(first: TrainerBatch, late: TrainerBatch) -> TrainerBatch:
    """Add the fields that exist only at the end of a step to its first copy.

    By then `response_mask` is the mask after rejection: it becomes `loss_mask`.
    Importance weights become a score: the log-probability whose ratio to the sampler's
    is the weight.
    """
    ids = "responses" if "responses" in first.fields else "response_ids"
    new = copy_to_host(late, skip={*first.fields} - {ids, "response_mask"})
    fields = dict(new.fields)
    if not torch.equal(fields.pop(ids).values, first.fields[ids].values):
        raise BatchError.build(
            key="responses",
            expected="those of the step's first call, in the same order",
            found="others",
            advice="Call `finish` before the batch is split or reordered.",
        )
    if "response_mask" in fields:
        fields["loss_mask"] = fields.pop("response_mask")
    if _WEIGHTS in fields:
        fields["rollout_is_log_probs"] = _apply_weights(first, fields.pop(_WEIGHTS))
    return replace(
        first,
        fields={**first.fields, **fields},
        columns={**new.columns, **first.columns},
        left_out=tuple(dict.fromkeys((*first.left_out, *new.left_out))),
    )


def _apply_weights(first: TrainerBatch, weights: Ragged) -> Ragged:
    rollout: Ragged = first.fields["rollout_log_probs"]
    mask, _ = FieldReader(first.fields, first.source).mask()
    values = weighted_log_probs(rollout.values, weights.values, mask)
    return replace(rollout, values=values)


_PART = "step_part"  # the sample column with the number of the batch


def same_samples(a: TrainerBatch, b: TrainerBatch) -> bool:
    """Return whether two batches have the same responses in the same order."""
    ours, theirs = (_tokens(batch) for batch in (a, b))
    is_as_long = torch.equal(ours.offsets, theirs.offsets)
    same_ids = is_as_long and torch.equal(ours.values, theirs.values)
    return same_ids and a.sample_ids == b.sample_ids


def _tokens(batch: TrainerBatch) -> Ragged:
    return FieldReader(batch.fields, batch.source).tokens


def join_parts(parts: Sequence[Snapshot]) -> Snapshot:
    """Join the batches of a step, which the sample column `step_part` numbers.

    Fields that only some of them have are left out and named. The samples that the
    joined order picks are among those that the parts pick, so that they have
    screenshots.
    """
    if len(parts) == 1:
        return parts[0]
    sizes = [len(_tokens(part.batch).lengths) for part in parts]
    starts = np.cumsum([0, *sizes])[:-1].tolist()
    return replace(
        parts[0],
        batch=_join_batches([part.batch for part in parts], sizes),
        order=_join_orders(parts),
        screenshots={
            start + sample: shots
            for part, start in zip(parts, starts, strict=True)
            for sample, shots in part.screenshots.items()
        },
        num_without_room=sum(part.num_without_room for part in parts),
    )


def _join_batches(
    batches: Sequence[TrainerBatch], sizes: Sequence[int]
) -> TrainerBatch:
    first, *others = batches
    shared = [k for k in first.fields if all(k in other.fields for other in others)]
    partial = {k for batch in batches for k in batch.fields} - {*shared}
    left_out = (name for batch in batches for name in batch.left_out)
    part = np.repeat(np.arange(len(batches)), sizes)
    return replace(
        first,
        fields={k: _join_rows([b.fields[k] for b in batches]) for k in shared},
        columns={**_join_columns(batches, sizes), _PART: part},
        info={key: value for batch in batches for key, value in batch.info.items()},
        round_records=_join_lists([b.round_records for b in batches], sizes),
        rollout_ids=_all_or_none([b.rollout_ids for b in batches]),
        sample_ids=_all_or_none([b.sample_ids for b in batches]),
        left_out=tuple(dict.fromkeys((*left_out, *sorted(partial)))),
    )


def _join_rows(fields: Sequence[Ragged]) -> Ragged:
    lengths = torch.cat([field.lengths for field in fields])
    return Ragged(
        values=torch.cat([field.values for field in fields]),
        offsets=torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]),
        is_padded=all(field.is_padded for field in fields),
    )


def _join_columns(
    batches: Sequence[TrainerBatch], sizes: Sequence[int]
) -> dict[str, Any]:
    names = dict.fromkeys(name for batch in batches for name in batch.columns)
    columns = {
        name: _join_lists([batch.columns.get(name) for batch in batches], sizes)
        for name in names
    }
    return {name: values for name, values in columns.items() if values is not None}


def _join_lists(
    lists: Sequence[Sequence[Any] | None], sizes: Sequence[int]
) -> list[Any] | None:
    """Join lists; a missing one becomes as many None, and all missing ones None."""
    if all(values is None for values in lists):
        return None
    pairs = zip(lists, sizes, strict=True)
    return [v for vs, size in pairs for v in ([None] * size if vs is None else vs)]


def _all_or_none(lists: Sequence[Sequence[Any] | None]) -> tuple[Any, ...] | None:
    known = [values for values in lists if values is not None]
    is_whole = len(known) == len(lists)
    return tuple(v for values in known for v in values) if is_whole else None


def _join_orders(parts: Sequence[Snapshot]) -> SampleOrder:
    orders = [part.order or order_samples(part.batch, part.seed) for part in parts]
    starts = np.cumsum([0, *(len(order.random) for order in orders)]).tolist()
    random = [
        (order.random + start).tolist()
        for order, start in zip(orders, starts, strict=False)
    ]
    means = np.concatenate(
        [
            mean_abs_diffs(part.batch, order.trajectory)
            for part, order in zip(parts, orders, strict=True)
        ]
    )
    # The first of each part, then the second of each, and so on.
    in_turn = [v for row in zip_longest(*random) for v in row if v is not None]
    return SampleOrder(
        random=np.array(in_turn, dtype=np.int64),
        worst=np.argsort(-means, kind="stable"),
        trajectory=np.concatenate(
            [
                order.trajectory + start
                for order, start in zip(orders, starts, strict=False)
            ]
        ),
    )

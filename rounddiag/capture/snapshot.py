"""Snapshot: the copy of a batch in host memory, which outlives the trainer's."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from rounddiag.capture.sampling import (
    SampleOrder,
    copy_screenshots,
    num_copied_bytes,
    order_samples,
)
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.fields.columns import select_plain_columns
from rounddiag.loaders.fields.mapping import SCORE, weighted_log_probs
from rounddiag.loaders.fields.reader import FieldReader
from rounddiag.loaders.parquet.columns import to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from rounddiag.capture.options import Options
    from rounddiag.capture.sampling import Screenshots
    from rounddiag.capture.trainer_batch import TrainerBatch
    from rounddiag.loaders.lazy.arrays import Ragged

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
    step : int
    batch : TrainerBatch
        From `copy_to_host`.
    seed : tuple of int
        Seed of the random sample.
    order : SampleOrder or None
        The order of the samples, where screenshots needed it already.
    screenshots : mapping of int to tuple of PatchScreenshot
        Copies of the screenshots of some samples.
    num_without_room : int
        Number of picked samples whose screenshots exceeded the memory limit.
    """

    step: int
    batch: TrainerBatch
    seed: tuple[int, int]
    order: SampleOrder | None = None
    screenshots: Mapping[int, Screenshots] = field(default_factory=dict)
    num_without_room: int = 0


def take_snapshot(
    step: int,
    batch: TrainerBatch,
    options: Options,
    read_image_inputs: ReadImageInputs | None,
) -> Snapshot:
    """Copy what the file of a step needs.

    Parameters
    ----------
    step : int
    batch : TrainerBatch
    options : Options
    read_image_inputs : callable or None
        Returns the `multi_modal_inputs` of some samples; called once.

    Raises
    ------
    LoadError
        If a field is missing or does not fit.
    """
    seed = (options.seed, abs(int(step)))
    snapshot = Snapshot(step=int(step), batch=copy_to_host(batch), seed=seed)
    if read_image_inputs is None or options.images == 0:
        return snapshot
    return _with_screenshots(snapshot, read_image_inputs, options.images)


def _with_screenshots(
    snapshot: Snapshot, read_image_inputs: ReadImageInputs, num_samples: int
) -> Snapshot:
    order = order_samples(snapshot.batch, snapshot.seed)
    samples = [*order.pick(num_samples)]
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
    """Copy the per-token fields and plain columns of all samples to host memory.

    Parameters
    ----------
    batch : TrainerBatch
    skip : collection of str
        Fields not to copy.

    Raises
    ------
    LoadError
        If a field has no rows, or the responses are missing.
    """
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
    values = torch.from_numpy(to_numpy(rows.values))
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

    Parameters
    ----------
    first : TrainerBatch
        From `copy_to_host`.
    late : TrainerBatch
        The same samples in the same order.

    Raises
    ------
    BatchError
        If the responses differ from those of the first copy.
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
        fields["rollout_is_log_probs"] = _weighted(first, fields.pop(_WEIGHTS))
    return replace(
        first,
        fields={**first.fields, **fields},
        columns={**new.columns, **first.columns},
        left_out=tuple(dict.fromkeys((*first.left_out, *new.left_out))),
    )


def _weighted(first: TrainerBatch, weights: Ragged) -> Ragged:
    rollout: Ragged = first.fields["rollout_log_probs"]
    mask, _ = FieldReader(first.fields, first.source).mask()
    values = weighted_log_probs(rollout.values, weights.values, mask)
    return replace(rollout, values=values)

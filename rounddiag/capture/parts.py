"""Several batches of one step, such as those of verl's `separate_async`, as one."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.capture.sampling import SampleOrder, mean_abs_diffs, order_samples
from rounddiag.loaders.fields.reader import FieldReader
from rounddiag.loaders.lazy.arrays import Ragged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rounddiag.capture.snapshot import Snapshot
    from rounddiag.capture.trainer_batch import TrainerBatch


PART = "step_part"  # the sample column with the number of the batch


def same_samples(a: TrainerBatch, b: TrainerBatch) -> bool:
    """Return whether two batches have the same responses in the same order.

    Parameters
    ----------
    a, b : TrainerBatch
        With their fields on the host.
    """
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

    Parameters
    ----------
    parts : sequence of Snapshot
        At least one.
    """
    if len(parts) == 1:
        return parts[0]
    sizes = [len(_tokens(part.batch).lengths) for part in parts]
    starts = np.cumsum([0, *sizes])[:-1].tolist()
    return replace(
        parts[0],
        batch=_join_batches([part.batch for part in parts], sizes),
        order=_join_orders(parts, starts),
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
        columns={**_join_columns(batches, sizes), PART: part},
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


def _join_orders(parts: Sequence[Snapshot], starts: Sequence[int]) -> SampleOrder:
    orders = [part.order or order_samples(part.batch, part.seed) for part in parts]
    random = [
        (order.random + start).tolist()
        for order, start in zip(orders, starts, strict=True)
    ]
    means = np.concatenate([mean_abs_diffs(part.batch) for part in parts])
    return SampleOrder(
        random=np.array([*_in_turn(random)], dtype=np.int64),
        worst=np.argsort(-means, kind="stable"),
    )


def _in_turn(lists: Sequence[Sequence[int]]) -> Iterable[int]:
    """Return the first of each list, then the second of each, and so on."""
    return (v for row in zip_longest(*lists) for v in row if v is not None)

"""What the rollout file beside a train file adds to its batch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError, RounddiagError
from rounddiag.loaders.fields.columns import plain_columns
from rounddiag.loaders.frameworks.slime import screenshots
from rounddiag.loaders.frameworks.slime.rows import RowReader
from rounddiag.loaders.frameworks.slime.side_file import rollout_file
from rounddiag.loaders.frameworks.slime.values import plain_table, whole
from rounddiag.loaders.left_out import left_out_of, told_left_out
from rounddiag.loaders.tables.stored_fields import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.loaders.frameworks.slime.side_file import RolloutFile

    Sample = Mapping[str, Any]

MAX_VERSIONS = 1 << 10  # of one sample
# What the train file has too, under these or other names.
_OF_TRAINING = {
    "index",
    "loss_mask",
    "response_length",
    "rollout_log_probs",
    "teacher_log_probs",
    "tokens",
}
_USED = {*_OF_TRAINING, *screenshots.USED, "group_index", "weight_versions"}


def with_rollouts(
    batch: Batch, rollout_id: object, samples: Sequence[Sample], train_file: Path
) -> Batch:
    """Return a batch with text, status, groups, versions and pictures of its rollouts.

    They are in `../rollout_data/{rollout_id}.pt` of the train file. `meta` tells that
    file as `rollout_file`, or why it was not used: one that is damaged, or of other
    samples, does not keep the train file from being read.

    Parameters
    ----------
    batch : Batch
    rollout_id : object
        As the train file has it.
    samples : sequence of mapping
        The train file's.
    train_file : Path
    """
    try:
        rollouts = rollout_file(train_file, rollout_id, samples)
        return batch if rollouts is None else _added(batch, rollouts)
    except (OSError, RounddiagError) as error:
        told = {"rollout_file": f"not used: {error}"}
        return replace(batch, meta={**batch.meta, **told})


def _added(batch: Batch, rollouts: RolloutFile) -> Batch:
    columns, not_plain = plain_table(rollouts.samples, _USED, rollouts.source)
    columns |= _versions([_versions_of(sample) for sample in rollouts.samples])
    groups = [whole(sample.get("group_index")) for sample in rollouts.samples]
    if batch.images is None:
        batch = screenshots.with_rebuilt(batch, rollouts.samples, rollouts.source)
    pictures, odd = screenshots.pictures_of(rollouts.samples)
    batch = without(screenshots.with_pictures(batch, pictures), not_plain | odd)
    texts = plain_columns(columns, batch.num_samples)
    others = {"num_other_rollouts": rollouts.num_others} if rollouts.num_others else {}
    return replace(
        batch,
        group_ids=None if None in groups else tuple(map(str, groups)),
        rollout_ids=_response_ids(rollouts),
        sample_columns={**texts, **batch.sample_columns},
        meta={**batch.meta, "rollout_file": str(rollouts.source.path), **others},
    )


def without(batch: Batch, names: set[str]) -> Batch:
    """Return a batch whose `meta` tells which fields of its files it does not have."""
    told = told_left_out({*left_out_of(batch), *names})
    return replace(batch, meta={**batch.meta, **told})


def _versions(rows: Sequence[list[str]]) -> dict[str, list[Any]]:
    """Return the lowest and highest weight version, and all where there are several."""
    if not any(rows):
        return {}
    ends = {
        "min_weight_version": [row[0] if row else None for row in rows],
        "max_weight_version": [row[-1] if row else None for row in rows],
    }
    if all(len(row) <= 1 for row in rows):
        return ends
    return {**ends, "weight_versions": [", ".join(row) or None for row in rows]}


def _versions_of(sample: Sample) -> list[str]:
    """Return the weight versions that wrote a sample, the lowest first."""
    listed = as_list(sample.get("weight_versions"))[:MAX_VERSIONS]
    known = {version for version in listed if isinstance(version, str)}
    return sorted(known, key=lambda version: (len(version), version))


def _response_ids(rollouts: RolloutFile) -> tuple[Tensor, ...] | None:
    """Return the responses as the sampling engine wrote them, if all are there."""
    reader = RowReader(rollouts.samples, rollouts.source)
    numbers = range(len(rollouts.samples))
    try:
        rows = [reader.divided(i, "response_length")[1] for i in numbers]
    except LoadError:
        return None
    is_ids = not any(row.is_floating_point() for row in rows)
    return tuple(row.long().clone() for row in rows) if is_ids else None

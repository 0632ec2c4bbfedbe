"""What a rollout file adds to the samples of a train file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.slime import screenshots
from rounddiag.loaders.slime.rows import RowReader
from rounddiag.loaders.slime.values import plain_table, whole
from rounddiag.loaders.stored_fields import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rounddiag.loaders.slime.side_file import RolloutFile

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


def rollout_columns(rollouts: RolloutFile) -> tuple[dict[str, list[Any]], set[str]]:
    """Return columns of text, status, groups and versions, and what is left out.

    The weight versions of a sample are told by their ends, `min_weight_version` and
    `max_weight_version`, and all of them where there are several.
    """
    if rollouts.source is None:
        return {}, set()
    columns, left_out = plain_table(rollouts.samples, _USED, rollouts.source)
    groups = [whole(sample.get("group_index")) for sample in rollouts.samples]
    if None not in groups:
        columns["uid"] = groups
    versions = [_versions(sample) for sample in rollouts.samples]
    if any(versions):
        columns["min_weight_version"] = [row[0] if row else None for row in versions]
        columns["max_weight_version"] = [row[-1] if row else None for row in versions]
        columns["weight_versions"] = [", ".join(row) or None for row in versions]
    if all(len(row) < 2 for row in versions):  # noqa: PLR2004 the ends are one
        columns.pop("weight_versions", None)
    return columns, left_out


def _versions(sample: Sample) -> list[str]:
    """Return the weight versions that wrote a sample, the lowest first."""
    listed = as_list(sample.get("weight_versions"))[:MAX_VERSIONS]
    known = {version for version in listed if isinstance(version, str)}
    return sorted(known, key=lambda version: (len(version), version))


def response_ids(rollouts: RolloutFile) -> tuple[Tensor, ...] | None:
    """Return the responses as the sampling engine wrote them, if all are there."""
    if rollouts.source is None:
        return None
    reader = RowReader(rollouts.samples, rollouts.source)
    numbers = range(len(rollouts.samples))
    try:
        rows = [reader.divided(i, "response_length")[1] for i in numbers]
    except LoadError:
        return None
    is_ids = not any(row.is_floating_point() for row in rows)
    return tuple(row.long().clone() for row in rows) if is_ids else None

"""What a rollout file adds to the samples of a train file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.loaders.slime import screenshots
from rounddiag.loaders.slime.token_fields import vector
from rounddiag.loaders.slime.values import plain_table, whole
from rounddiag.loaders.stored_fields import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from rounddiag.loaders.slime.side_file import RolloutFile
    from rounddiag.loaders.source import Source

    Sample = Mapping[str, Any]

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
    known = {v for v in as_list(sample.get("weight_versions")) if isinstance(v, str)}
    return sorted(known, key=lambda version: (len(version), version))


def response_ids(rollouts: RolloutFile) -> tuple[Tensor, ...] | None:
    """Return the responses as the sampling engine wrote them, if all are there."""
    found = [_response(sample, rollouts.source) for sample in rollouts.samples]
    known = tuple(ids for ids in found if ids is not None)
    return known if known and len(known) == len(found) else None


def _response(sample: Sample, source: Source | None) -> Tensor | None:
    ids = None if source is None else vector(sample.get("tokens"), source)
    size = whole(sample.get("response_length"))
    if ids is None or ids.is_floating_point() or size is None:
        return None
    return ids[len(ids) - size :].long() if 0 <= size <= len(ids) else None

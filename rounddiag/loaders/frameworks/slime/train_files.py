"""slime's train files as batches, in all three layouts."""

from __future__ import annotations

import reprlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.loaders.fields.columns import SAME_PROMPT, prompt_group
from rounddiag.loaders.fields.mapping import batch_from_fields
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.slime.rollout_files import (
    SCREENSHOT_FIELDS,
    neighbour,
    with_left_out,
    with_rebuilt_screenshots,
    with_rollouts,
    with_weight_versions,
)
from rounddiag.loaders.frameworks.slime.samples import (
    USED,
    as_whole_number,
    of_columns,
    of_records,
    plain_table,
    token_fields,
)
from rounddiag.loaders.lazy.torch_file import read_torch
from rounddiag.loaders.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rounddiag.batch import Batch

    Sample = Mapping[str, Any]


_VERSION = 2
_USED = {*USED, *SCREENSHOT_FIELDS, "weight_versions"}


def read_samples(root: Mapping[str, object], source: Source) -> Batch:
    """Build a batch from a train file of all ranks."""
    if root["format_version"] != _VERSION:
        raise source.error(
            expected=f"slime's train data in `format_version` {_VERSION}",
            found=f"{reprlib.repr(root['format_version']):.40}",
            advice="Update rounddiag, or dump the step with the slime that it knows.",
        )
    samples, left_out = of_records(root, source)
    return _batch(samples, left_out, root["rollout_id"], source)


def read_columns(root: Mapping[str, object], source: Source) -> Batch:
    """Build a batch from the columns that one rank trained on."""
    samples, left_out = of_columns(root["rollout_data"], source)
    ranked = [{"rank": root["rank"], **sample} for sample in samples]
    return _batch(ranked, left_out, root["rollout_id"], source)


def read_rollouts(root: Mapping[str, object], source: Source) -> Batch:
    """Open the train file that lies beside a rollout file, which alone is no batch."""
    place = neighbour(source.path, "train_data", root["rollout_id"])
    if place is not None:
        train_file = Source.of_file(place)
        train = read_torch(train_file.whole())
        if isinstance(train, dict) and {*SAMPLES.keys} <= train.keys():
            return read_samples(train, train_file)
    raise source.error(
        expected="slime's train file beside this rollout file, which has no"
        " log-probabilities of the training engine",
        found=f"no ../train_data/{reprlib.repr(root['rollout_id']):.40}.pt",
        advice="Run slime with `--dump-details`, which writes both. Where each rank"
        " wrote a file, pass those: train_data/{rollout_id}_*.pt.",
    )


def _batch(
    samples: Sequence[Sample], left_out: set[str], rollout_id: object, source: Source
) -> Batch:
    if not samples:
        raise source.error(
            expected="samples that were trained on",
            found="none",
            advice="Pass the file of a rank that has some.",
        )
    fields = token_fields(samples, source)
    columns, not_plain = plain_table(samples, _USED, source)
    columns, origin = _with_raw_reward(columns), {"mask_source": "loss_masks"}
    has_images = any(sample.get("multimodal_train_inputs") for sample in samples)
    if "uid" not in columns and not has_images:
        columns["uid"] = [prompt_group(row) for row in fields["prompts"]]
        origin |= SAME_PROMPT
    indices = [as_whole_number(sample.get("sample_index")) for sample in samples]
    batch = batch_from_fields(
        fields,
        source=source.path,
        columns=columns,
        info={"global_steps": as_whole_number(rollout_id)},
        sample_ids=None if None in indices else list(map(str, indices)),
    )
    batch = replace(batch, meta={**batch.meta, **origin})
    batch = with_weight_versions(batch, samples)
    batch = with_rebuilt_screenshots(batch, samples, source)
    batch = with_left_out(batch, left_out | not_plain)
    return with_rollouts(batch, rollout_id, samples, source.path)


def _with_raw_reward(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the columns with the environment's reward as `rewards`.

    slime's own `rewards` are normalised by group, or shaped otherwise for training.
    """
    if "raw_reward" not in columns or "rewards" not in columns:
        return columns
    others = {k: v for k, v in columns.items() if k not in {"raw_reward", "rewards"}}
    trained_on = {"normalized_reward": columns["rewards"]}
    return {**others, "rewards": columns["raw_reward"], **trained_on}


SAMPLES = Format(
    name="train data",
    framework="slime",
    files=("train_data/*.pt",),
    keys=("format_version", "rollout_id", "samples"),
    read=read_samples,
    verified="written by slime's own payload function, on rollouts made by hand",
)
RANK_COLUMNS = Format(
    name="train data of a rank",
    framework="slime before version 2, vime",
    files=("train_data/*_*.pt",),
    keys=("rollout_id", "rank", "rollout_data"),
    read=read_columns,
    in_parts=True,
)
ROLLOUTS = Format(
    name="rollout data, with train data beside",
    framework="slime",
    files=("rollout_data/*.pt",),
    keys=("rollout_id", "samples"),
    read=read_rollouts,
    verified=SAMPLES.verified,
)

"""The rollout file of a train file: text, status, weight versions and screenshots."""

from __future__ import annotations

import reprlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import LoadError, RounddiagError
from rounddiag.loaders.assembly.images import (
    MAX_PICTURES,
    read_picture,
    with_pictures,
    with_screenshots,
)
from rounddiag.loaders.fields.columns import SAME_PROMPT, plain_columns
from rounddiag.loaders.frameworks.slime.samples import (
    RowReader,
    as_whole_number,
    dictionaries,
    plain_table,
)
from rounddiag.loaders.lazy.torch_file import read_torch
from rounddiag.loaders.source import Source, left_out_entry, left_out_of
from rounddiag.loaders.tabular.table import as_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from rounddiag.batch import Batch
    from rounddiag.vision import Screenshot

    Pictures = list[list[Screenshot]]
    Sample = Mapping[str, Any]


MAX_KINDS = 16  # images, videos, audio
SCREENSHOT_FIELDS = {"multimodal_inputs", "multimodal_train_inputs"}


def with_rebuilt_screenshots(
    batch: Batch, samples: Sequence[Sample], source: Source
) -> Batch:
    """Return a batch with screenshots rebuilt from what the processor made of them."""
    inputs = [sample.get("multimodal_train_inputs") for sample in samples]
    if all(row is None for row in inputs):
        return batch
    return with_screenshots(batch, inputs, source)


def stored_screenshots(samples: Sequence[Sample]) -> tuple[Pictures, set[str]]:
    """Return the pictures of each sample, and the field if it holds anything else."""
    room, found = MAX_PICTURES, []
    for sample in samples:
        pictures = _pictures(sample.get("multimodal_inputs"), room)
        room -= len(pictures or [])
        found.append(pictures)
    left_out = {"multimodal_inputs"} if None in found else set[str]()
    return [pictures or [] for pictures in found], left_out


def _pictures(inputs: object, room: int) -> list[Screenshot] | None:
    """Return the pictures of one sample; None for what is something else as well."""
    match inputs:
        case None:
            return []
        case dict() if len(inputs) <= MAX_KINDS:
            images = inputs.get("images") or []
            others = [value for kind, value in inputs.items() if kind != "images"]
        case _:
            return None
    if any(others) or not isinstance(images, list) or len(images) > room:
        return None
    found = [read_picture(image) for image in images]
    known = [picture for picture in found if picture is not None]
    return known if len(known) == len(found) else None


MAX_ROLLOUT_ID = 1 << 63


@dataclass(frozen=True, kw_only=True)
class RolloutFile:
    """What a rollout file says of the samples of a train file.

    Attributes
    ----------
    samples : list of mapping
        In the order of the train file's.
    source : Source
    num_others : int
        How many of its rollouts are not among the samples.
    """

    samples: list[Sample]
    source: Source
    num_others: int


def rollout_file(
    train_file: Path, rollout_id: object, samples: Sequence[Sample]
) -> RolloutFile | None:
    """Return the rollout file of a train file, `../rollout_data/{rollout_id}.pt`.

    Raises
    ------
    LoadError
        If it cannot be read, or is of other samples.
    """
    place = neighbour(train_file, "rollout_data", rollout_id)
    if place is None:
        return None
    source = Source.of_file(place)
    rollouts = _rollouts(source, rollout_id)
    positions = _positions(samples, rollouts)
    if len(positions) < len(samples) or _others(samples, rollouts, positions):
        raise _foreign(source, "other samples")
    return RolloutFile(
        samples=[rollouts[position] for position in positions],
        source=source,
        num_others=len(rollouts) - len(set(positions)),
    )


def neighbour(file: Path, folder: str, rollout_id: object) -> Path | None:
    """Return the file of a rollout in a folder beside that of `file`, if there is one.

    Raises
    ------
    LoadError
        If it is a link that leads out of the dump.
    """
    if not isinstance(rollout_id, int) or not 0 <= rollout_id < MAX_ROLLOUT_ID:
        return None
    place = file.parent.parent / folder / f"{rollout_id:d}.pt"
    if not place.is_file():
        return None
    if not place.resolve().is_relative_to(file.parent.parent.resolve()):
        raise LoadError.build(
            file=place,
            expected="a file in the folder of the dump",
            found="a link that leads out of it",
            advice="Copy the file to its place.",
        )
    return place


def _rollouts(source: Source, rollout_id: object) -> Sequence[Sample]:
    root = read_torch(source.whole())
    if not isinstance(root, dict) or not {"rollout_id", "samples"} <= root.keys():
        raise _foreign(source, "something else")
    if root["rollout_id"] != rollout_id:
        raise _foreign(source, f"rollout {reprlib.repr(root['rollout_id']):.40}")
    return dictionaries(root["samples"], source)


def _foreign(source: Source, found: str) -> LoadError:
    return source.error(
        expected="the rollouts that the train file was made of",
        found=found,
        advice="Keep `train_data` and `rollout_data` of one run together.",
    )


def _positions(samples: Sequence[Sample], rollouts: Sequence[Sample]) -> list[int]:
    """Return where each sample is among the rollouts, as far as that is known.

    Older files do not say where; there the index of a rollout does, if it is its own.
    """
    indices = [as_whole_number(rollout.get("index")) for rollout in rollouts]
    count = Counter(indices)
    known = {index: at for at, index in enumerate(indices) if count[index] == 1}
    known.pop(None, None)
    found = [
        as_whole_number(
            sample.get(
                "rollout_position",
                known.get(as_whole_number(sample.get("sample_index"))),
            )
        )
        for sample in samples
    ]
    return [n for n in found if n is not None and 0 <= n < len(rollouts)]


def _others(
    samples: Sequence[Sample], rollouts: Sequence[Sample], positions: Sequence[int]
) -> bool:
    """Whether a rollout has another index than the sample in its place."""
    pairs = [
        (
            as_whole_number(sample.get("sample_index")),
            as_whole_number(rollouts[position].get("index")),
        )
        for sample, position in zip(samples, positions, strict=True)
    ]
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


MAX_VERSIONS = 1 << 10  # of one sample
# What the train file has too, under these or other names.
_TRAIN_FIELDS = {
    "index",
    "loss_mask",
    "response_length",
    "rollout_log_probs",
    "teacher_log_probs",
    "tokens",
}
_USED = {*_TRAIN_FIELDS, *SCREENSHOT_FIELDS, "group_index", "weight_versions"}


def with_rollouts(
    batch: Batch, rollout_id: object, samples: Sequence[Sample], train_file: Path
) -> Batch:
    """Return a batch with text, status, groups, versions and pictures of its rollouts.

    They are in `../rollout_data/{rollout_id}.pt` of the train file.
    `meta["rollout_file"]` names that file, or says why it was not used: the train file
    can be read even if its rollout file is damaged or has other samples.

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
        note = {"rollout_file": f"not used: {error}"}
        return replace(batch, meta={**batch.meta, **note})


def _added(batch: Batch, rollouts: RolloutFile) -> Batch:
    columns, not_plain = plain_table(rollouts.samples, _USED, rollouts.source)
    batch = with_weight_versions(batch, rollouts.samples)
    groups = [as_whole_number(sample.get("group_index")) for sample in rollouts.samples]
    if batch.images is None:
        batch = with_rebuilt_screenshots(batch, rollouts.samples, rollouts.source)
    pictures, odd = stored_screenshots(rollouts.samples)
    batch = with_left_out(with_pictures(batch, pictures), not_plain | odd)
    texts = plain_columns(columns, batch.num_samples)
    is_grouped = None not in groups
    meta = {
        k: v for k, v in batch.meta.items() if not (is_grouped and k in SAME_PROMPT)
    }
    others = {"num_other_rollouts": rollouts.num_others} if rollouts.num_others else {}
    return replace(
        batch,
        group_ids=batch.group_ids if None in groups else tuple(map(str, groups)),
        rollout_ids=_response_ids(rollouts),
        sample_columns={**texts, **batch.sample_columns},
        meta={**meta, "rollout_file": str(rollouts.source.path), **others},
    )


def with_left_out(batch: Batch, names: set[str]) -> Batch:
    """Return a batch whose `meta["left_out"]` also has these names."""
    entry = left_out_entry({*left_out_of(batch), *names})
    return replace(batch, meta={**batch.meta, **entry})


def with_weight_versions(batch: Batch, samples: Sequence[Sample]) -> Batch:
    """Return the batch with the weight versions of its samples, and of its rounds.

    The engine reports one a call: they are those of the rounds where a sample has as
    many rounds.
    """
    calls = [_calls(sample) for sample in samples]
    ends = plain_columns(_versions([*map(_sorted_versions, calls)]), len(batch))
    counts = batch.rounds.sample.bincount(minlength=len(batch)).tolist()
    rows = [
        (sample, index, version)
        for sample, (versions, count) in enumerate(zip(calls, counts, strict=True))
        if len(versions) == count
        for index, version in enumerate(versions)
    ]
    if not rows:
        return replace(batch, sample_columns={**ends, **batch.sample_columns})
    keys = np.array([row[:2] for row in rows], dtype=np.int64)
    versions = np.array([version for _, _, version in rows], dtype=object)
    columns = {"sample": keys[:, 0], "round": keys[:, 1], "weight_version": versions}
    return replace(
        batch,
        sample_columns={**ends, **batch.sample_columns},
        round_columns=batch.round_columns or columns,
    )


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


def _calls(sample: Sample) -> list[str]:
    """Return the weight version of each call of the engine."""
    listed = as_list(sample.get("weight_versions"))[:MAX_VERSIONS]
    return [version for version in listed if isinstance(version, str)]


def _sorted_versions(calls: list[str]) -> list[str]:
    """Return the weight versions that wrote a sample, the lowest first."""
    return sorted({*calls}, key=lambda version: (len(version), version))


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

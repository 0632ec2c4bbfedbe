"""The rollout file of a train file: text, status, weight versions and screenshots."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.batch.contexts import SAMPLER_PROMPTS
from rounddiag.batch.left_out import left_out_entry, left_out_of
from rounddiag.core.versions import TRAINER
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.loaders.assembly.images import with_screenshots
from rounddiag.loaders.frameworks.slime.samples import (
    Columns,
    dictionaries,
    divide_tokens,
    whole_numbers,
    with_entries,
)
from rounddiag.loaders.plain_columns import (
    SAME_PROMPT,
    collect_columns,
    replaced_names,
    select_plain_columns,
    with_round_column,
)
from rounddiag.loaders.source import Source, inside, load_errors
from rounddiag.loaders.tables import (
    LazyFields,
    as_list,
    rows_of,
    table_of,
    with_picture_column,
)
from rounddiag.loaders.torch_file import read_torch
from rounddiag.text.json_text import objects_in


@dataclass(frozen=True, kw_only=True)
class RolloutFile:
    """The rollouts of the samples of a train file.

    Attributes
    ----------
    columns: One value per sample, in the order of the train file.
    positions: The index of each sample among the rollouts.
    num_rollouts: The number of rollouts in the file, trained on or not.
    unread: What else the file has.
    """

    columns: Columns
    source: Source
    positions: list[int]
    num_rollouts: int
    unread: frozenset[str]


def find_rollout_file(
    train_file: Path, rollout_id: object, batch: Batch
) -> RolloutFile | None:
    """Return the rollout file of a train file, `../rollout_data/{rollout_id}.pt`."""
    path = sibling_file(train_file, "rollout_data", rollout_id)
    if path is None:
        return None
    source = Source.of_file(path)
    with load_errors(source):
        rollouts, unread = _read_rollouts(source, rollout_id)
        positions = _positions(batch, rollouts)
    if len(positions) < len(batch):
        raise _mismatch(source, "other samples")
    columns, _ = collect_columns([rollouts[position] for position in positions])
    return RolloutFile(
        columns=columns,
        source=source,
        positions=positions,
        num_rollouts=len(rollouts),
        unread=unread,
    )


def sibling_file(file: Path, folder: str, rollout_id: object) -> Path | None:
    """Return the file of a rollout in another folder of the dump, if it exists."""
    if not isinstance(rollout_id, int) or not 0 <= rollout_id < 1 << 63:
        return None
    home, name = file.parent.parent, f"{folder}/{rollout_id:d}.pt"
    if not (home / name).is_file():
        return None
    inside(home, name)
    return home / name


def _read_rollouts(
    source: Source, rollout_id: object
) -> tuple[Sequence[Mapping[str, Any]], frozenset[str]]:
    root = read_torch(source.whole())
    if not isinstance(root, dict) or not {"rollout_id", "samples"} <= root.keys():
        raise _mismatch(source, "something else")
    if root["rollout_id"] != rollout_id:
        raise _mismatch(source, f"rollout {reprlib.repr(root['rollout_id']):.40}")
    return dictionaries(root["samples"]), frozenset(map(str, root)) - _OF_FILES


_OF_FILES = {"rollout_id", "samples", "format_version"}


def _mismatch(source: Source, content: str) -> LoadError:
    return source.error(
        expected="the rollouts that the train file was made of",
        found=content,
        advice="Keep `train_data` and `rollout_data` of one run together.",
    )


def _positions(batch: Batch, rollouts: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the position of each sample among the rollouts, if it is known.

    Without `rollout_position` in the file, unique indices of rollouts are matched. A
    position is dropped if the rollout there has another index than the sample.
    """
    indices = whole_numbers([rollout.get("index") for rollout in rollouts])
    count = Counter(indices)
    unique = {index: at for at, index in enumerate(indices) if count[index] == 1}
    unique.pop(None, None)
    sample_indices = _sample_column(batch, "sample_index")
    if "rollout_position" in batch.sample_columns:
        positions = _sample_column(batch, "rollout_position")
    else:
        positions = [unique.get(index) for index in sample_indices]
    return [
        at
        for at, index in zip(positions, sample_indices, strict=True)
        if at is not None
        and 0 <= at < len(rollouts)
        and (index is None or indices[at] in {None, index})
    ]


def _sample_column(batch: Batch, name: str) -> list[int | None]:
    column = batch.sample_columns.get(name)
    values = [None] * len(batch) if column is None else column.tolist()
    return whole_numbers(values)


# Fields that the train file has too, under these or other names.
_TRAIN_FIELDS = {
    "index",
    "loss_mask",
    "response_length",
    "rollout_log_probs",
    "teacher_log_probs",
    "tokens",
}
_USED = {
    *_TRAIN_FIELDS,
    "group_index",
    "multimodal_inputs",
    "multimodal_train_inputs",
    "rollout_prompt_ids",
    "weight_versions",
}


def with_rollouts(
    batch: Batch, rollout_id: object, raw_rewards: Sequence[Any], source: Source
) -> Batch:
    """Return a batch with text, status, groups, versions and pictures of its rollouts.

    They are in `../rollout_data/{rollout_id}.pt` of the train file.
    `meta["rollout_file"]` names that file, or says why it was not used: the train file
    can be read even if its rollout file is damaged or has other samples.
    """
    try:
        rollouts = find_rollout_file(source.path, rollout_id, batch)
        if rollouts is None:
            return batch
        with load_errors(rollouts.source):
            batch = _with_columns(batch, rollouts)
        return _with_raw_rewards(batch, rollouts, raw_rewards)
    except (OSError, RounddiagError) as error:
        note = {"rollout_file": f"not used: {error}"}
        return replace(batch, meta={**batch.meta, **note})


def _with_columns(batch: Batch, rollouts: RolloutFile) -> Batch:
    columns, source = rollouts.columns, rollouts.source
    others = {name: rows for name, rows in columns.items() if name not in _USED}
    table = table_of(with_entries(others))
    texts = select_plain_columns(table.columns, len(batch))
    batch = with_weight_versions(batch, columns.get("weight_versions", []))
    groups = whole_numbers(columns.get("group_index", [None]))
    inputs = columns.get("multimodal_train_inputs", [])
    if batch.images is None and any(row is not None for row in inputs):
        batch = with_screenshots(batch, inputs, source)
    pictures = columns.get("multimodal_inputs", [])
    if any(row is not None for row in pictures):
        batch = with_picture_column(batch, "multimodal_inputs", pictures, source)
    is_grouped = None not in groups
    meta = {
        k: v for k, v in batch.meta.items() if not (is_grouped and k in SAME_PROMPT)
    }
    num_others = rollouts.num_rollouts - len({*rollouts.positions})
    left_out = {*table.fields, *table.columns} - {*texts}
    left_out |= {*left_out_of(batch), *rollouts.unread}
    left_out |= {*replaced_names(texts, batch.sample_columns)}
    group_ids = tuple(map(str, groups)) if is_grouped else batch.group_ids
    if batch.group_ids and not SAME_PROMPT.keys() & batch.meta.keys():
        left_out |= {*replaced_names({"uid": batch.group_ids}, {"uid": group_ids})}
    prompts, responses = _divided(rollouts)
    batch = _with_sampler_prompts(batch, prompts, rollouts)
    return replace(
        batch,
        group_ids=group_ids,
        rollout_ids=tuple(row.long().clone() for row in responses) or None,
        sample_columns={**texts, **batch.sample_columns},
        meta={
            **meta,
            "rollout_file": str(source.path),
            **({"num_other_rollouts": num_others} if num_others else {}),
            **left_out_entry(left_out),
        },
    )


def _with_raw_rewards(
    batch: Batch, rollouts: RolloutFile, rewards: Sequence[Any]
) -> Batch:
    """Take the environment's rewards, if only the rollouts assign them to samples.

    In slime's files `partition` does, which miles drops.
    """
    left_out = left_out_of(batch)
    numbers = [r for r in rewards if isinstance(r, int | float)]
    if "raw_reward" not in left_out or len(numbers) != rollouts.num_rollouts:
        return batch
    columns = dict(batch.sample_columns)
    if batch.rewards is not None:
        columns["normalized_reward"] = batch.rewards.numpy()
    meta = {name: fact for name, fact in batch.meta.items() if name != "left_out"}
    others = [name for name in left_out if name != "raw_reward"]
    values = [float(numbers[position]) for position in rollouts.positions]
    return replace(
        batch,
        rewards=torch.tensor(values, dtype=torch.float64),
        sample_columns=columns,
        meta={**meta, **left_out_entry(others)},
    )


def with_weight_versions(batch: Batch, rows: Sequence[object]) -> Batch:
    """Return the batch with the weight versions of its samples, and of its rounds.

    The engine reports one per call. They are assigned to rounds if a sample has as many
    rounds as calls. Newer miles has spans of tokens in place of versions.
    """
    if len(rows) != len(batch):
        return batch
    spans = [[*chain(*map(objects_in, as_list(row)))] for row in rows]
    if any(spans):
        rows = [[span.get("version") for span in row] for row in spans]
        column = {"weight_versions": _versions_of_tokens(batch, spans)}
        batch = replace(batch, token_columns={**batch.token_columns, **column})
    calls = [[v for v in as_list(row) if isinstance(v, str)] for row in rows]
    ends = select_plain_columns(_versions([*map(_sorted_versions, calls)]), len(batch))
    counts = batch.rounds.sample.bincount(minlength=len(batch)).tolist()
    versions = [
        (sample, index, version)
        for sample, (row, count) in enumerate(zip(calls, counts, strict=True))
        if len(row) == count and not any(spans)
        for index, version in enumerate(row)
    ]
    newest = max((row[-1] for row in map(_sorted_versions, calls) if row), default="")
    if batch.step is not None and newest == str(batch.step + 1):
        # The first weights are sent as version 1, before rollout 0.
        batch = replace(batch, meta={**batch.meta, TRAINER: batch.step + 1})
    if not versions:
        return replace(batch, sample_columns={**ends, **batch.sample_columns})
    keys = np.array([row[:2] for row in versions], dtype=np.int64)
    columns = {
        "sample": keys[:, 0],
        "round": keys[:, 1],
        "weight_version": np.array([row[2] for row in versions], dtype=object),
    }
    return replace(
        batch,
        sample_columns={**ends, **batch.sample_columns},
        round_columns=batch.round_columns or columns,
    )


def _versions_of_tokens(batch: Batch, rows: Sequence[list[dict[str, Any]]]) -> Tensor:
    """Return the version of each token from spans, which count from the prompt on."""
    versions = torch.full((batch.num_positions,), float("nan"), dtype=torch.float64)
    prompts = batch.prompt_offsets
    lengths = torch.zeros(len(rows)) if prompts is None else prompts.diff()
    for sample, row in enumerate(rows):
        prompt, start, stop = (
            int(bounds) for bounds in (lengths[sample], *batch.offsets[sample:][:2])
        )
        for span in row:
            match span:
                case {"version": str(text), "abs_start": int(a), "abs_end": int(b)}:
                    if (
                        text.isdecimal()
                        and 0 <= a - prompt < b - prompt <= stop - start
                    ):
                        versions[start + a - prompt : start + b - prompt] = int(text)
    return versions


def _versions(rows: Sequence[list[str]]) -> dict[str, list[Any]]:
    if not any(rows):
        return {}
    ends = {
        "min_weight_version": [row[0] if row else None for row in rows],
        "max_weight_version": [row[-1] if row else None for row in rows],
    }
    if all(len(row) <= 1 for row in rows):
        return ends
    return {**ends, "weight_versions": [", ".join(row) or None for row in rows]}


def _sorted_versions(calls: list[str]) -> list[str]:
    return sorted({*calls}, key=lambda version: (len(version), version))


def _divided(rollouts: RolloutFile) -> tuple[list[Tensor], list[Tensor]]:
    """Return the sampler's prompts and responses; empty lists if any is missing."""
    tokens = rollouts.columns.get("tokens", [])
    lengths = rollouts.columns.get("response_length", [])
    rows = LazyFields(["tokens"], lambda _: rows_of(tokens))
    with suppress(LoadError):
        prompts, responses = divide_tokens(rows, lengths, rollouts.source)
        if not any(row.is_floating_point() for row in responses):
            return prompts, responses
    return [], []


def _with_sampler_prompts(
    batch: Batch, prompts: Sequence[Tensor], rollouts: RolloutFile
) -> Batch:
    """Return the batch with what the sampler read before each round, if it differs.

    miles has the prompt before the processor expands its pictures and videos; what
    follows it is the same for both engines.
    """
    if batch.prompt_ids is None or batch.prompt_offsets is None or not prompts:
        return batch
    given = rollouts.columns.get("rollout_prompt_ids", [None] * len(prompts))
    trained = batch.prompt_ids.long().split(batch.prompt_offsets.diff().tolist())
    sampled = [
        own.long() if ids is None else torch.tensor(as_list(ids), dtype=torch.int64)
        for own, ids in zip(prompts, given, strict=True)
    ]
    if all(map(torch.equal, trained, sampled)):
        return batch
    ids, rounds = batch.require_ids().long(), batch.rounds
    places = zip(rounds.sample.tolist(), rounds.start.tolist(), strict=True)
    read = [
        torch.cat([sampled[sample], ids[int(batch.offsets[sample]) : start]]).tolist()
        for sample, start in places
    ]
    column = np.fromiter(read, dtype=object, count=len(read))
    return with_round_column(batch, SAMPLER_PROMPTS, column)

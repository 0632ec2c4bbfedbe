"""Join the batches of one step end to end; drop rows that are padding or copies."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.context_store import join_contexts
from rounddiag.batch.layout import PER_SAMPLE, POSITION_TABLES
from rounddiag.batch.left_out import left_out_entry, left_out_of
from rounddiag.checks.rows import find_copies
from rounddiag.columns.column import scatter_with_missing
from rounddiag.columns.sources import build_offsets
from rounddiag.errors import LoadError


def _without_copies(parts: Sequence[Batch]) -> list[Batch]:
    """Drop samples that are bit-identical to a sample of an earlier batch."""
    times = Counter(name for part in parts for name in {*(part.sample_ids or ())})
    owner: dict[tuple[str, bytes], int] = {}
    unique = []
    for number, part in enumerate(parts):
        keep = [
            times[name] == 1
            or part.response_ids is None  # texts are of no rank
            or owner.setdefault((name, _digest(part, sample)), number) == number
            for sample, name in enumerate(part.sample_ids or ())
        ]
        unique.append(part if all(keep) else part.where(keep))
    return unique


def _digest(part: Batch, sample: int) -> bytes:
    start = int(part.offsets[sample])
    stop = start + int(part.lengths[sample])
    tokens = {**part.per_token, **part.scores}
    digest = hashlib.sha256(repr([*tokens]).encode())
    for values in tokens.values():
        digest.update(
            values[start:stop].contiguous().view(torch.uint8).numpy().tobytes()
        )
    if part.prompt_ids is not None and part.prompt_offsets is not None:
        prompt = part.prompt_ids[slice(*part.prompt_offsets[sample : sample + 2])]
        digest.update(prompt.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.digest()


def _per_token(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: torch.cat([part[name] for part in parts]) for name in names}


def _prompts(parts: Sequence[Batch]) -> dict[str, Tensor]:
    ids, sizes = [], []
    for part in parts:
        if part.prompt_ids is None or part.prompt_offsets is None:
            return {}
        ids.append(part.prompt_ids[part.prompt_offsets[0] :])
        sizes.append(part.prompt_offsets.diff())
    return {
        "prompt_ids": torch.cat(ids),
        "prompt_offsets": build_offsets(torch.cat(sizes)),
    }


def _per_sample(parts: Sequence[Batch]) -> dict[str, Any]:
    fields: dict[str, Any] = {"rewards": _rewards(parts)}
    for name in PER_SAMPLE:
        values = [getattr(part, name) for part in parts]
        if name == "images" and any(value is not None for value in values):
            none = [((),) * len(part) for part in parts]
            values = [v or n for v, n in zip(values, none, strict=True)]
        if all(value is not None for value in values):
            fields[name] = tuple(entry for value in values for entry in value)
    return fields


def _rewards(parts: Sequence[Batch]) -> Tensor | None:
    if all(part.rewards is None for part in parts):
        return None
    rows = [
        torch.full((len(part),), torch.nan) if part.rewards is None else part.rewards
        for part in parts
    ]
    return torch.cat(rows)


def _round_columns(parts: Sequence[Batch]) -> dict[str, Array]:
    starts = np.cumsum([0, *map(len, parts[:-1])])
    counted = [
        {**part.round_columns, "sample": part.round_columns["sample"] + start}
        for part, start in zip(parts, starts, strict=True)
        if part.round_columns
    ]
    return _columns(counted, [len(columns["sample"]) for columns in counted])


def _columns(
    parts: Sequence[Mapping[str, Array]], sizes: list[int]
) -> dict[str, Array]:
    """Join columns of these sizes; a part that lacks one gets NaN or None."""
    ends = np.cumsum(sizes)
    names = dict.fromkeys(name for part in parts for name in part)
    joined = {}
    for name in names:
        present = [index for index, part in enumerate(parts) if name in part]
        rows = [np.arange(ends[i] - sizes[i], ends[i]) for i in present]
        values = _join_arrays([parts[i][name] for i in present])
        joined[name] = scatter_with_missing(values, np.concatenate(rows), sum(sizes))
    return joined


def _join_arrays(arrays: list[Array]) -> Array:
    """Join arrays; numpy would convert numbers to text if some arrays are text."""
    kinds = {array.dtype.kind for array in arrays}
    if len(kinds) > 1 and not kinds <= {"i", "f"}:
        arrays = [array.astype(object) for array in arrays]
    return np.concatenate(arrays)


# Entries of `meta` with rules of their own for merging.
_COUNTS = ("num_dropped_rows", "num_dropped_copies", "num_unread_blocks")
_SPECIAL = {"left_out", "source", *_COUNTS}


def _sources(parts: Sequence[Batch]) -> list[str]:
    return [str(p.meta.get("source", f"batch {i}")) for i, p in enumerate(parts)]


def _merged_meta(
    parts: Sequence[Batch], num_copies: int, lost: Sequence[str]
) -> dict[str, Any]:
    names = dict.fromkeys(name for part in parts for name in part.meta)
    entries = {
        name: _merged_entry(parts, name) for name in names if name not in _SPECIAL
    }
    counts = {name: _sum(parts, name) for name in _COUNTS}
    counts["num_dropped_rows"] += num_copies
    left_out = {*lost, *(name for part in parts for name in left_out_of(part))}
    return {
        "source": ", ".join(_sources(parts)),
        **entries,
        **{name: count for name, count in counts.items() if count},
        **left_out_entry(left_out),
    }


def _sum(parts: Sequence[Batch], name: str) -> int:
    counts = [part.meta.get(name) for part in parts]
    return sum(count for count in counts if isinstance(count, int))


def _merged_entry(parts: Sequence[Batch], name: str) -> object:
    """Return the value that all share, or a mapping from source to value."""
    named = zip(_sources(parts), parts, strict=True)
    values = [(source, part.meta[name]) for source, part in named if name in part.meta]
    first = values[0][1]
    is_same = len(values) == len(parts) and all(value == first for _, value in values)
    return first if is_same else dict(values)


def concatenate(batches: Iterable[Batch]) -> Batch:
    """Join batches of one step end to end; texts also of several.

    - A field per token that only some batches have is left out and named in
      `meta["left_out"]`; so are token ids where some have texts alone. Missing sample
      columns are NaN or None, missing images none.
    - A sample with the name and the exact numbers of an earlier one is dropped and
      counted in `meta["num_dropped_rows"]`: tensor-parallel ranks write copies.
    - An entry of `meta` that differs becomes a mapping from source to value.
    """
    all_parts = _require_one_step(batches)
    parts = _without_copies(all_parts)
    num_copies = sum(map(len, all_parts)) - sum(map(len, parts))
    # The file of a rank without samples lacks fields, but they are not missing.
    given = [part for part in parts if len(part)] or parts[:1]
    parts = _with_common_round_ids(_with_common_text(given))
    tokens = _per_token([part.per_token for part in parts])
    fields = {**tokens, **_prompts(parts), **_per_sample(parts)}
    tables: dict[str, Any] = {
        table: _per_token([getattr(part, table) for part in parts])
        for table in POSITION_TABLES
    }
    present = {name for name, value in fields.items() if value is not None}
    present |= {name for columns in tables.values() for name in columns}
    lost = [name for part in given for name in _fields(part) if name not in present]
    contexts = join_contexts([part.contexts for part in parts], [*map(len, parts)])
    return Batch(
        **fields,
        contexts=contexts if fields.get("prompt_ids") is not None else None,
        offsets=build_offsets(torch.cat([part.offsets.diff() for part in parts])),
        lengths=torch.cat([part.lengths for part in parts]),
        **tables,
        step=next((part.step for part in all_parts if part.step is not None), None),
        tokenizer=_tokenizer(parts),
        sample_columns=_columns(
            [part.sample_columns for part in parts], [*map(len, parts)]
        ),
        round_columns=_round_columns(parts),
        meta=_merged_meta(all_parts, num_copies, lost),
    )


def _require_one_step(batches: Iterable[Batch]) -> list[Batch]:
    parts: list[Batch] = []
    steps: dict[int, Batch] = {}
    for batch in batches:
        parts.append(batch)
        if batch.step is not None:
            steps.setdefault(batch.step, batch)
        if len(steps) > 1 and not all(part.pieces is not None for part in parts):
            named = zip(steps, _sources(list(steps.values())), strict=True)
            steps_of_files = [f"step {step} in {name}" for step, name in named]
            raise LoadError.build(
                expected="the files of one step",
                found=" and ".join(steps_of_files),
                advice="Pass the folder or the glob of one step.",
            )
    return [*map(_with_step_column, parts)] if len(steps) > 1 else parts


def _with_step_column(part: Batch) -> Batch:
    """Return texts with the step of each sample, which is then not the batch's."""
    steps = np.full(len(part), part.step)
    return replace(
        part, step=None, sample_columns={"step": steps, **part.sample_columns}
    )


def _with_common_text(parts: list[Batch]) -> list[Batch]:
    """Return all parts with the pieces of their texts, if some have texts alone."""
    if all(part.pieces is None for part in parts):
        return parts
    return [part if part.turns is None else _as_text(part) for part in parts]


def _as_text(part: Batch) -> Batch:
    shots = [
        [replace(shot, round=None, position=None) for shot in row]
        for row in part.images or ((),) * len(part)
    ]
    samples = [
        [(turn.role, turn.text, [*islice(pictures, turn.num_images)]) for turn in turns]
        for turns, pictures in zip(part.turns or (), map(iter, shots), strict=True)
    ]
    names = ("group_ids", "sample_ids", "step", "rewards", "tokenizer", "meta")
    return Batch.from_turns(
        samples,
        sample_columns=part.sample_columns,
        round_columns=part.round_columns,
        **{name: getattr(part, name) for name in names},
    )


def _with_common_round_ids(parts: list[Batch]) -> list[Batch]:
    """Add constant `round_ids` to parts without any, if other parts have some."""
    if all(part.round_ids is None for part in parts):
        return parts
    return [
        replace(part, round_ids=torch.zeros_like(part.response_mask))
        if part.round_ids is None
        else part
        for part in parts
    ]


def _tokenizer(parts: Sequence[Batch]) -> object | None:
    tokenizers = [part.tokenizer for part in parts if part.tokenizer is not None]
    is_same = all(tokenizer == tokenizers[0] for tokenizer in tokenizers)
    return tokenizers[0] if tokenizers and is_same else None


def _fields(part: Batch) -> list[str]:
    optional = ("prompt_ids", "rewards", *PER_SAMPLE)
    present = [name for name in optional if getattr(part, name) is not None]
    return [*part.per_token, *part.scores, *part.token_columns, *present]


# Columns that mark padding rows, in verl's V1 trainer and in rLLM.
_FLAGS = ("is_padding", "is_pad_step")
_PADDING_GROUP = re.compile(r"pad[0-9a-f]+")  # in verl


def without_padding_rows(batch: Batch) -> Batch:
    """Drop the rows that pad a batch; `meta["num_dropped_rows"]` counts them.

    A column marks them. Without it, verl's padding rows have groups of their own and no
    generated tokens.
    """
    flags = [
        batch.sample_columns[name] for name in _FLAGS if name in batch.sample_columns
    ]
    if flags:
        padding = {row for column in flags for row, flag in enumerate(column) if flag}
    else:
        generated = set(batch.rounds.sample.tolist())
        padding = {
            row
            for row, group in enumerate(batch.group_ids or ())
            if _PADDING_GROUP.fullmatch(group) and row not in generated
        }
    return _drop_rows(batch, padding, "num_dropped_rows")


def without_copied_rows(batch: Batch) -> Batch:
    """Drop rows that are surely copies; `meta["num_dropped_copies"]` counts them.

    Trainers copy rows to fill a batch, as ROLL and verl-agent do, or to weight samples,
    as DART-GUI does.
    """
    copies = {row for rows in find_copies(batch, sure=True) for row in rows[1:]}
    return _drop_rows(batch, copies, "num_dropped_copies")


def _drop_rows(batch: Batch, rows: Collection[int], counter: str) -> Batch:
    if not rows:
        return batch
    rest = batch.where([row not in rows for row in range(len(batch))])
    count = batch.meta.get(counter, 0) + len(rows)
    return replace(rest, meta={**rest.meta, counter: count})

"""Rows of a batch: copies, padding, empty responses, mixed weight versions."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from hashlib import blake2b
from math import comb, log
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.step_order import STEP_COLUMNS
from rounddiag.checks.contracts import (
    Contract,
    Fault,
    UntestableError,
    fault_in,
    merge_faults,
    require_tokens,
)
from rounddiag.columns import Column
from rounddiag.core.columns import to_numpy
from rounddiag.core.groups import TRAJECTORY_COLUMNS, as_bytes, prompt_hashes
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.batch import Batch

# So many log-probs of each row are compared before whole rows are.
_PROBES = 16
_BLOCK = 1 << 16  # rows at a time
_HASH_BYTES = 16
# Equal rows are copies if chance gives at most so many sets of them: models repeat
# short, certain answers, and equal tokens can have equal log-probs.
_BY_CHANCE = 0.01
# A total log-prob below this, in nats, is never sampled twice.
_NEVER_TWICE = -20.0


def starts_context(batch: Batch) -> Tensor:
    """Mark the positions at which what entered a rewritten context begins.

    What stands before it belongs to another context: there, no text goes on.
    """
    starts = torch.zeros(batch.num_positions + 1, dtype=torch.bool)
    contexts = batch.contexts
    if contexts is not None:
        starts[to_numpy(batch.offsets)[contexts.sample] + contexts.start] = True
    return starts[:-1].to(batch.response_mask.device)


def find_copies(batch: Batch, *, sure: bool = False) -> list[list[int]]:
    """Return groups of rows with the same prompt, response and log-probs.

    Rows that may be equal by chance are left out: their prompt was sampled so often
    that a response of this probability is expected twice.
    """
    written = batch.rounds.sample.unique_consecutive().cpu().numpy()
    if len(written) < 2 or batch.lacks("ids", "rollout"):  # noqa: PLR2004 two rows can be equal
        return []
    probes = _probes(batch)[written]
    _, which, times = np.unique(probes, return_inverse=True, return_counts=True)
    alike = written[times[which] > 1].tolist()
    equal = _group_equal(alike, _row_hashes(batch)) if alike else []
    if not equal:
        return []
    names = _names(batch)
    copies = [
        named
        for rows in equal
        for named in _group_equal(rows, lambda row: names[row])
        if names[named[0]] is not None
    ]
    is_named = {row for rows in copies for row in rows}
    others = [rows for rows in equal if not {*rows} & is_named]
    limit = (lambda _: _NEVER_TWICE) if sure else _least_log_prob(batch)
    copies += [rows for rows in others if not _log_prob(batch, rows[0]) > limit(rows)]
    return sorted(copies)


def _copies(batch: Batch) -> Fault | None:
    batch.require("ids", "rollout")
    require_tokens(batch)
    copies = find_copies(batch)
    if not copies:
        return None
    num = sum(len(rows) - 1 for rows in copies)
    first, word = copies[0], "is a copy" if num == 1 else "are copies"
    return Fault(
        f"{num:,} of {pluralize(len(batch), 'sample')} {word} of another, with its"
        f" prompt, response and log-probs: sample {first[1]} is sample {first[0]}",
        tuple(sorted(row for rows in copies for row in rows[1:])),
    )


def _names(batch: Batch) -> list[tuple[str, ...] | None]:
    """Return all columns of each row, None where no column names a single row."""
    columns = batch.sample_columns
    is_named = "request_id" in columns or (
        any({*names} <= columns.keys() for names in TRAJECTORY_COLUMNS)
        and any(len({*map(str, columns.get(name, ()))}) > 1 for name in STEP_COLUMNS)
    )
    if not is_named:
        return [None] * len(batch)
    return [tuple(map(str, row)) for row in zip(*columns.values(), strict=True)]


def _least_log_prob(batch: Batch) -> Callable[[list[int]], float]:
    """Return the total log-prob above which rows may be equal by chance.

    Of the sets of so many rows of one prompt, a part is expected to repeat its first.
    """
    prompts = [*map(prompt_hashes(batch), range(len(batch)))]
    times = Counter(prompts)

    def limit(rows: list[int]) -> float:
        sets = comb(times[prompts[rows[0]]], len(rows))
        return log(_BY_CHANCE / sets) / (len(rows) - 1)

    return limit


def _group_equal(rows: Iterable[int], key: Callable[[int], Any]) -> list[list[int]]:
    groups: defaultdict[Any, list[int]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return [group for group in groups.values() if len(group) > 1]


def _probes(batch: Batch) -> Array:
    """Return a number of each row, from some of its log-probs; equal for copies."""
    steps = torch.arange(_PROBES, device=batch.offsets.device)
    factors = np.random.default_rng(0).integers(1 << 63, size=_PROBES, dtype=np.uint64)
    codes = [np.empty(0, np.uint64)]
    rollout = batch.log_probs("rollout")
    for begins, lengths in zip(
        batch.offsets[:-1].split(_BLOCK), batch.lengths.split(_BLOCK), strict=True
    ):
        index = begins[:, None] + lengths[:, None] * steps // _PROBES
        index.clamp_(max=batch.num_positions - 1)  # an empty row at the end
        values = rollout[index].float().cpu().numpy()
        codes.append(values.view(np.uint32).astype(np.uint64) @ factors)
    return np.concatenate(codes)


def _row_hashes(batch: Batch) -> Callable[[int], bytes]:
    flat = (batch.response_ids, batch.rollout_log_probs, batch.old_log_probs)
    fields = [as_bytes(values) for values in flat if values is not None]
    begins, lengths = batch.offsets.tolist(), batch.lengths.tolist()
    hash_prompt = prompt_hashes(batch)

    def hash_row(row: int) -> bytes:
        digest = blake2b(hash_prompt(row), digest_size=_HASH_BYTES)
        begin = begins[row]
        for data, size in fields:
            digest.update(data[begin * size : (begin + lengths[row]) * size])
        return digest.digest()

    return hash_row


def _log_prob(batch: Batch, sample: int) -> float:
    begin, stop = batch.offsets[sample : sample + 2].tolist()
    written = batch.response_mask[begin:stop] != 0
    return float(batch.log_probs("rollout")[begin:stop][written].double().sum())


def _find_rows_without_tokens(batch: Batch) -> Fault | None:
    if batch.num_samples == 0:
        raise UntestableError(field="response_mask", why="the batch has no sample")
    unwritten = batch.lengths > 0
    unwritten[batch.rounds.sample] = False
    rows = unwritten.nonzero()[:, 0].tolist()
    return fault_in(rows, "in which the model wrote nothing, as in padding")


def _empty(batch: Batch) -> Fault | None:
    if batch.num_samples == 0:
        raise UntestableError(field="lengths", why="the batch has no sample")
    empty = (batch.lengths == 0).nonzero()[:, 0].tolist()
    return fault_in(empty, "without a single response token")


_PADDING = partial(Contract, kind="bug", cause="padding_rows")
COPIES = _PADDING(
    "no row is a copy of another",
    "response_ids",
    _copies,
    effect="copied rows weigh more than the others",
    advice="Drop the copies before the loss and the metrics: they weigh twice.",
)
WRITTEN = _PADDING(
    "every row has a generated token",
    "response_mask",
    _find_rows_without_tokens,
    effect="rows without a generated token count as 0 in means",
    advice="Drop rows without a generated token before the metrics: a mean of sample"
    " means counts them as 0.",
)
NOT_EMPTY = _PADDING(
    "no response is empty",
    "lengths",
    _empty,
    effect="empty rows count as 0 in means",
    advice="Drop empty rows before the metrics.",
)


# Prefixes of sample columns that are the two ends of a range.
_RANGE_PREFIXES = (("min_", "max_"), ("lowest_", "highest_"))


def _mixed_versions(batch: Batch) -> Fault | None:
    versions = [*_sample_versions(batch), *_round_versions(batch)]
    if not versions:
        raise UntestableError(
            field="min_global_steps",
            needs="`weight_version` in `round_columns`, or `min_global_steps` and"
            " `max_global_steps` in `sample_columns`",
        )
    faults: dict[tuple[int, ...], str] = {}
    for name, values in versions:
        known = [_distinct(row) for row in values]
        mixed = tuple(sample for sample, own in enumerate(known) if len(own) > 1)
        if mixed:
            first = f"({name}): sample {mixed[0]} by {', '.join(known[mixed[0]])}"
            faults.setdefault(mixed, first)  # columns often say the same
    words = "written by more than one version, which is not always a fault"
    return merge_faults(
        Fault(f"{pluralize(len(mixed), 'sample')} {words} {first}", mixed)
        for mixed, first in faults.items()
    )


def _sample_versions(batch: Batch) -> Iterator[tuple[str, Iterable[Iterable[object]]]]:
    columns = batch.sample_columns
    for low, high in _RANGE_PREFIXES:
        for name in columns:
            other = high + name.removeprefix(low)
            if name.startswith(low) and _is_version(name) and other in columns:
                ends = (_known(end, columns[end]) for end in (name, other))
                yield f"`{name}` and `{other}`", zip(*ends, strict=True)


def _round_versions(batch: Batch) -> Iterator[tuple[str, Iterable[Iterable[object]]]]:
    for name, values in batch.round_columns.items():
        if _is_version(name):
            rows: dict[int, list[object]] = {i: [] for i in range(batch.num_samples)}
            samples = batch.round_columns["sample"].tolist()
            for sample, value in zip(samples, _known(name, values), strict=True):
                rows.setdefault(sample, []).append(value)
            yield f"`{name}`", [rows[sample] for sample in range(batch.num_samples)]


def _known(name: str, values: Array) -> list[object]:
    column = Column.of(name, "sample", values)
    pairs = zip(column.filled.tolist(), column.is_known().tolist(), strict=True)
    return [value if is_known and value != "" else None for value, is_known in pairs]


def _is_version(name: str) -> bool:
    return "version" in name or "global_step" in name


def _distinct(values: Iterable[object]) -> list[str]:
    return [*dict.fromkeys(str(value) for value in values if value is not None)]


ONE_VERSION = Contract(
    "one weight version wrote each row",
    "weight_version",
    _mixed_versions,
    effect="parts of these samples are from older weights",
    refutes="mixed_weights",
)

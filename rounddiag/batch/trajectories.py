"""Join rows that are steps into samples, one per trajectory.

`join_rows` does it, and `StepInterleaver` builds the fields.

=========================  =========================================================
of a later row             it becomes
=========================  =========================================================
prompt                     what is new in it is an observation: mask and log-probs 0,
                           entropy and advantages NaN, because they were not computed.
                           `Batch.context` returns all of it
response                   the next rounds, never merged with the round before
images                     those that are new, with rounds and positions in the sample
one value per row          a column of samples where all rows of each trajectory
                           agree, else a column of rounds; `rewards` are those of
                           the last row
`position_ids`             the same, end to end; they restart in each chain of
                           contexts
=========================  =========================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch.batch import Batch
from rounddiag.batch.context_joining import ContextJoiner
from rounddiag.batch.contexts import context_columns
from rounddiag.batch.layout import map_positions, real_rows, select
from rounddiag.batch.left_out import left_out_entry, left_out_of
from rounddiag.batch.picture_places import with_image_rounds
from rounddiag.batch.step_order import StepOrder, named_column, step_order
from rounddiag.columns.column import are_same, is_unknown, python_value
from rounddiag.columns.sources import build_offsets
from rounddiag.errors import LoadError
from rounddiag.schema import CONTEXT_COLUMNS, ORIGINAL_SAMPLE
from rounddiag.vision import Screenshot
from rounddiag.wording import pluralize

_Named = tuple[str, Sequence[int]]
_Rows = Sequence[int]
ARE_STEPS = "rows are steps"  # begins the note on rows that were not joined


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """The rows of each trajectory.

    Attributes
    ----------
    rows: All rows of the batch, grouped by trajectory and in order.
    sizes: How many rows each trajectory has.
    names: The name of each.
    order: How its rows are ordered.
    """

    rows: Array
    sizes: Array
    names: tuple[str, ...]
    order: StepOrder


def with_unknown_rounds(batch: Batch, note: str) -> Batch:
    """Say in `meta` that the rounds are unknown, and why."""
    return replace(batch, meta={**batch.meta, "rows": note, "rounds": "unknown"})


def find_trajectories(
    batch: Batch, sample_by: Sequence[str], order_by: str | None
) -> Trajectories:
    """Group the rows that have the same values in the columns of `sample_by`.

    A row without a value is a trajectory of its own. Trajectories are in the order of
    their first rows.
    """
    columns = [named_column(batch, name, "sample_by") for name in sample_by]
    groups: dict[tuple[str, ...], list[int]] = {}
    for row, values in enumerate(zip(*columns, strict=True)):
        is_alone = any(map(is_unknown, map(python_value, values)))
        label = (f"row {row}",) if is_alone else tuple(map(str, values))
        groups.setdefault(label, []).append(row)
    order = step_order(batch, order_by, groups.values())
    rows = [order.sort(group) for group in groups.values()]
    names = tuple(map("_".join, groups))
    if order.column:
        _check_steps(batch, order, zip(names, rows, strict=True))
    return Trajectories(
        rows=np.array([row for group in rows for row in group], dtype=np.int64),
        sizes=np.array([len(group) for group in rows], dtype=np.int64),
        names=names,
        order=order,
    )


def _check_steps(batch: Batch, order: StepOrder, named: Iterable[_Named]) -> None:
    for name, rows in named:
        for row, other in pairwise(rows):
            if order.keys[row] == order.keys[other]:
                step = named_column(batch, order.column, "order_by")[row]
                raise LoadError.build(
                    key=order.column,
                    expected="one row per step of each trajectory",
                    found=f"rows {row} and {other}, both step {step!s:.40} of"
                    f" trajectory {name!r:.80}",
                    advice="Remove one of them, or pass the columns that distinguish"
                    " the trajectories as `sample_by`.",
                )


_NOT_JOINED = (
    f"{ARE_STEPS} that were not joined (`order_by` names the column with the step"
    ' number; `order_by="row"` is the order of the file)'
)
_KEYS = ("sample", "round", "row")  # of the round columns of a joined batch
ROW_REWARD = "row_reward"  # the column of `rewards`
# Columns that are derived, so that those of a file under their names are left out.
_DERIVED = {"num_rows", *(column.name for column in CONTEXT_COLUMNS)}
REPLACED = {*_DERIVED, *_KEYS, ROW_REWARD, ORIGINAL_SAMPLE.name}


def join_rows(
    batch: Batch, sample_by: str | Sequence[str], order_by: str | None = None
) -> Batch:
    """Join the rows of each trajectory into one sample."""
    names = (sample_by,) if isinstance(sample_by, str) else tuple(sample_by)
    trajectories = find_trajectories(batch, names, order_by)
    order, sizes = trajectories.order, trajectories.sizes
    if not order.is_known:
        return with_unknown_rounds(batch, f"{_NOT_JOINED}: {order.description}")
    batch = _without_replaced(batch)
    rows = select(batch, torch.from_numpy(trajectories.rows))
    steps = StepInterleaver(rows, sizes)
    heads = select(rows, torch.from_numpy(steps.first))
    columns, first = _columns(rows), steps.first[steps.sample]
    differing = {k: v for k, v in columns.items() if not agree(v, v[first])}
    joined = replace(
        heads,
        **steps.fields(),
        rewards=None if rows.rewards is None else rows.rewards[steps.last],
        group_ids=None if "row_group_id" in differing else heads.group_ids,
        sample_ids=trajectories.names,
        position_ids=steps.position_ids(),
        sample_columns={
            **{k: v for k, v in heads.sample_columns.items() if k not in differing},
            "num_rows": sizes,
        },
        round_columns=_round_columns(rows, steps, differing),
        meta=_meta(
            batch, differing, f"{_join_note(names, sizes)}, {order.description}"
        ),
    )
    if batch.position_ids is not None and joined.position_ids is None:
        entry = left_out_entry([*left_out_of(joined), "position_ids"])
        joined = replace(joined, meta={**joined.meta, **entry})
    if len(steps.breaks):
        ids = round_ids_with_breaks(joined, steps.breaks)
        joined = replace(joined, round_ids=ids)
    joined = replace(joined, contexts=steps.contexts)
    return with_image_rounds(with_context_columns(joined, steps.most_rows))


def with_context_columns(batch: Batch, most_rows: int | None = None) -> Batch:
    """Add the columns of the contexts of rounds, and a note on how they follow.

    Parameters
    ----------
    most_rows : int, optional
        How many rows of its patches distinguish a picture, where these are not all.
    """
    if batch.prompt_ids is None and batch.pieces is None:
        return batch
    columns = {**batch.round_columns, **context_columns(batch)}
    note = _context_note(batch)
    if most_rows is not None:
        note += (
            f"; pictures with {pluralize(most_rows, 'equal row')} of patches, spread"
            " evenly, count as the same"
        )
    meta = {**batch.meta, "contexts": note}
    return replace(batch, round_columns=columns, meta=meta)


def _columns(rows: Batch) -> dict[str, Array]:
    """Return the columns with one value per row, except the row number."""
    return {**_of_rows(rows), **rows.sample_columns}


def _of_rows(rows: Batch) -> dict[str, Array]:
    known = {
        "row_id": rows.sample_ids,
        "row_group_id": rows.group_ids,
        ROW_REWARD: None if rows.rewards is None else rows.rewards.tolist(),
    }
    return {k: np.array(v) for k, v in known.items() if v is not None}


def _without_replaced(batch: Batch) -> Batch:
    """Leave out, and name, the columns whose names those of joined rows have."""
    names = {*_DERIVED, *_of_rows(batch)}
    samples, rounds = batch.sample_columns, batch.round_columns
    lost = names & {*samples, *rounds}
    if not lost:
        return batch
    return replace(
        batch,
        sample_columns={k: v for k, v in samples.items() if k not in names},
        round_columns={k: v for k, v in rounds.items() if k not in names},
        meta={**batch.meta, **left_out_entry({*left_out_of(batch), *lost})},
    )


def agree(column: Array, first: Array) -> bool:
    """Return whether each row has the value of its trajectory's first row."""
    return all(map(are_same, column.tolist(), first.tolist()))


def _round_columns(
    rows: Batch, steps: StepInterleaver, differing: dict[str, Array]
) -> dict[str, Array]:
    row = rows.rounds.sample.numpy()
    others = {
        **{name: column[row] for name, column in differing.items()},
        **{name: _stored(rows, name) for name in rows.columns.rounds},
    }
    return {
        "sample": steps.sample[row],
        "round": rows.rounds.round.numpy() + steps.rounds_before[row],
        "row": rows.sample_columns[ORIGINAL_SAMPLE.name][row],
        **{k: v for k, v in others.items() if k not in {*_KEYS, ORIGINAL_SAMPLE.name}},
    }


def _stored(rows: Batch, name: str) -> Array:
    """Return a column of rounds; lists stay lists."""
    is_list = rows.round_columns[name].dtype == object and any(
        isinstance(value, list | np.ndarray) for value in rows.round_columns[name]
    )
    columns = rows.columns
    return columns.stored_by_round(name) if is_list else columns.rounds[name].filled


def _join_note(names: tuple[str, ...], sizes: Array) -> str:
    columns = ", ".join(f"`{name}`" for name in names)
    return (
        f"{sizes.sum()} rows joined into {pluralize(len(sizes), 'sample')} by {columns}"
    )


def _context_note(batch: Batch) -> str:
    """Return how many contexts append to the one before, and where others begin.

    Rows of one sample alone have no context before.
    """
    rewritten = batch.contexts
    num_rewritten = 0 if rewritten is None else len(rewritten)
    num_later = int((batch.sample_columns["num_rows"] - 1).sum())
    note = f"{num_later - num_rewritten} appended, {num_rewritten} rewritten"
    if rewritten is None:
        return note
    rounds, counts = np.unique(rewritten.round, return_counts=True)
    if len(rounds) == 1:
        return f"{note}, all at round {rounds[0]}"
    return f"{note}, {counts[0]} of them at round {rounds[0]}"


def _num_lost(batch: Batch) -> int:
    if not batch.round_columns:
        return 0
    return len(batch.round_columns["sample"]) - batch.columns.num_rounds_known


def _meta(batch: Batch, differing: dict[str, Array], note: str) -> dict[str, Any]:
    lost = [name for name in _KEYS if name in differing]
    if num_lost := _num_lost(batch):
        lost.append(f"{pluralize(num_lost, 'row')} of `round_columns`")
    if differing and (num_silent := len(batch) - len(batch.rounds.sample.unique())):
        lost.append(f"columns of {pluralize(num_silent, 'row')} without a round")
    left_out = left_out_entry([*left_out_of(batch), *lost])
    known = dict(batch.meta)
    is_noted = str(known.get("rows", "")).startswith(ARE_STEPS)
    if is_noted and known.get("mask_source") != "attention_mask":
        known.pop("rounds", None)  # saved before the rows were joined
    meta = {**known, "rows": note, **left_out}
    if isinstance(facts := meta.get("screenshots"), list):
        meta["screenshots"] = [re.sub("^sample ", "row ", str(f)) for f in facts]
    return meta


# NaN in observations, where they are not computed. Log-probs and masks are 0, as in
# verl.
_UNDEFINED = ("entropy", "advantages")


class StepInterleaver:
    """Interleaves the rows of each sample: a later prompt becomes an observation.

    Parameters
    ----------
    rows : Batch
        The rows of each sample, one after the other.
    sizes : array of int
        How many rows each sample has; at least one.

    Attributes
    ----------
    first, last: Its first and its last row.
    sample: The sample of the row.
    rounds_before: Number of rounds of the sample in earlier rows.
    breaks: Where later rows start in the flat fields.
    contexts: Those that were rewritten; None if there are none.
    most_rows: How many rows of patches of a picture were compared; None for all.
    """

    def __init__(self, rows: Batch, sizes: Array) -> None:
        self._rows = rows
        self.last = np.cumsum(sizes) - 1
        self.first = self.last - sizes + 1
        self.sample = np.repeat(np.arange(len(sizes)), sizes)
        num_rounds = np.bincount(rows.rounds.sample.numpy(), minlength=len(rows))
        rounds = np.cumsum(num_rounds) - num_rounds
        self.rounds_before = rounds - rounds[self.first][self.sample]
        self._rounds_after = self.rounds_before + num_rounds
        self._lengths = rows.lengths.numpy()
        limits = [*zip(self.first.tolist(), (self.last + 1).tolist(), strict=True)]
        joiner = ContextJoiner(rows, self.rounds_before)
        self._steps = [
            step
            for sample, (first, stop) in enumerate(limits)
            for step in joiner.join(sample, range(first, stop))
        ]
        self.contexts, self.most_rows = joiner.contexts(), joiner.most_rows
        self._limits = limits
        self._observed = np.array(
            [len(step.observed) for step in self._steps], np.int64
        )
        width = self._observed + self._lengths
        before = np.cumsum(width) - width
        self._start = before + self._observed - before[self.first][self.sample]
        self._width = np.bincount(self.sample, width, len(sizes)).astype(np.int64)
        is_later = np.ones(len(rows), dtype=bool)
        is_later[self.first] = False
        is_apart = self._observed == 0
        is_apart |= np.array([step.is_rewritten for step in self._steps], bool)
        self.breaks = torch.from_numpy(before[is_later & is_apart])

    def fields(self) -> dict[str, Any]:
        """Return the fields of the samples, except prompts."""
        rows, lengths = self._rows, torch.from_numpy(self._width)
        ids = rows.require_ids()
        return {
            **map_positions(rows, self._with_observations),
            "response_ids": torch.cat(
                [ids[:0], *self._with_observed(real_rows(self._rows, ids))]
            ),
            "lengths": lengths,
            "offsets": build_offsets(lengths),
            "rollout_ids": self._rollout_ids(),
            "images": self._images(),
        }

    def _with_observations(self, name: str, flat: Tensor) -> Tensor:
        is_open = name in _UNDEFINED or name in self._rows.token_columns
        undefined = is_open and flat.dtype.is_floating_point
        filler = torch.nan if undefined else 0
        rows = real_rows(self._rows, flat)
        parts = [
            part
            for row, size in zip(rows, self._observed, strict=True)
            for part in (flat.new_full((int(size),), filler), row)
        ]
        return torch.cat([flat[:0], *parts])

    def _with_observed(self, rows: Sequence[Tensor]) -> list[Tensor]:
        return [
            torch.cat([torch.from_numpy(step.observed).to(row), row])
            for step, row in zip(self._steps, rows, strict=True)
        ]

    def _rollout_ids(self) -> tuple[Tensor, ...] | None:
        if self._rows.rollout_ids is None:
            return None
        rows = self._with_observed(self._rows.rollout_ids)
        return tuple(torch.cat(rows[first:stop]) for first, stop in self._limits)

    def position_ids(self) -> tuple[Tensor, ...] | None:
        """Join the position ids; None if those of a row do not fit its tokens."""
        rows = self._rows.position_ids
        if rows is None:
            return None
        sizes = [step.size for step in self._steps]
        if [ids.shape[-1] for ids in rows] != sizes:
            return None
        if any(len({ids.shape[:-1] for ids in rows[a:b]}) > 1 for a, b in self._limits):
            return None
        new = [
            ids if step.is_rewritten else ids[..., step.num_known :]
            for ids, step in zip(rows, self._steps, strict=True)
        ]
        return tuple(torch.cat(new[a:b], dim=-1) for a, b in self._limits)

    def _images(self) -> tuple[tuple[Screenshot, ...], ...] | None:
        if self._rows.images is None:
            return None
        shots = [
            [
                self._move(row, shot, place)
                for shot, place, is_new in zip(
                    images, step.places, step.is_new, strict=True
                )
                if is_new
            ]
            for row, (images, step) in enumerate(
                zip(self._rows.images, self._steps, strict=True)
            )
        ]
        return tuple(
            tuple(chain.from_iterable(shots[first:stop]))
            for first, stop in self._limits
        )

    def _move(self, row: int, shot: Screenshot, place: int | None) -> Screenshot:
        after = int(self._rounds_after[row])
        last = int(self._rounds_after[self.last[self.sample[row]]])
        index = (
            after if shot.round is None else shot.round + int(self.rounds_before[row])
        )
        if place is not None:
            place -= self._steps[self.first[self.sample[row]]].num_prompt
        return replace(shot, round=index if index < last else None, position=place)


def round_ids_with_breaks(batch: Batch, breaks: Tensor) -> Tensor:
    """Return `round_ids` that change where the batch's do, and at `breaks`."""
    changes = torch.zeros(batch.num_positions + 1, dtype=torch.int32)
    changes[breaks] = 1
    if batch.round_ids is not None:
        changes[1:-1] |= batch.round_ids[1:] != batch.round_ids[:-1]
    return changes[:-1].cumsum(0, dtype=torch.int32)

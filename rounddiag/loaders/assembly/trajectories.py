"""Rows that are steps, as samples: the rows of one trajectory, one after the other.

=========================  =========================================================
of a later row             it becomes
=========================  =========================================================
prompt                     an observation: mask and log-probs 0, entropy and
                           advantages NaN, as nobody computed any
response                   the next rounds, never one with the round before
images                     the same, with their rounds and positions counted on
one value a row            a column of samples where all rows of each trajectory
                           agree, else a column of rounds; `rewards` are those of
                           the last row
`position_ids`             left out: they start anew in each row
=========================  =========================================================
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.layout import select
from rounddiag.core.columns import round_values
from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.interleaving import StepInterleaver
from rounddiag.loaders.assembly.round_splitting import round_ids_with_breaks
from rounddiag.loaders.messages import format_names
from rounddiag.loaders.natural_order import is_absent, sort_keys
from rounddiag.loaders.source import left_out_entry, left_out_of
from rounddiag.schema import ORIGINAL_SAMPLE
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from rounddiag._typing import Array
    from rounddiag.batch import Batch

    Named = tuple[str, Sequence[int]]
    Rows = Sequence[int]


# Columns that count the steps: of Agent-Lightning, rLLM, DART-GUI and ROLL.
_OF_FRAMEWORKS = ("turn_index_list", "step_ids", "step_idx", "step")
# Names with other uses as well: only distinct whole numbers count as steps.
_USUAL = (
    *("turn", "turn_idx", "turn_id", "turn_index", "step_index", "step_id"),
    *("env_step", "round", "round_idx"),
)


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """How the rows of a trajectory are ordered.

    Attributes
    ----------
    description : str
        For `meta["rows"]`.
    column : str
        The column with the step number; empty if the rows keep their order.
    keys : list
        A sort key for each row; empty likewise.
    """

    description: str
    column: str = ""
    keys: Sequence[Any] = ()

    def sorted(self, rows: Rows) -> Rows:
        """Return the rows of one trajectory in order."""
        return sorted(rows, key=self.keys.__getitem__) if self.keys else rows


def step_order(
    batch: Batch, order_by: str | None, trajectories: Collection[Rows]
) -> StepOrder:
    """Find the column that counts the steps: the requested one, else a known one.

    Raises
    ------
    LoadError
        If the requested column does not exist or cannot be sorted.
    """
    if order_by is not None:
        return _order_by(order_by, _requested_keys(batch, order_by))
    for name in _OF_FRAMEWORKS:
        keys = sort_keys(batch.sample_columns.get(name))
        if keys is not None and _changes(keys, trajectories):
            return _order_by(name, keys)
    present = [name for name in _USUAL if name in batch.sample_columns]
    for name in present:
        keys = batch.sample_columns[name].tolist()
        if all(map(_is_whole, keys)) and _is_distinct(keys, trajectories):
            return _order_by(name, keys)
    why = f", as {', '.join(f'`{name}`' for name in present)} cannot be their numbers"
    unknown = ", as no known column counts the steps (pass `order_by`)"
    return StepOrder(
        description=f"in the order of the file{why if present else unknown}"
    )


def named_column(batch: Batch, name: str, option: str) -> Array:
    """Return a column by name; `option` is the parameter that named it, for the error.

    Raises
    ------
    LoadError
        If there is none.
    """
    columns = dict(batch.sample_columns)
    if batch.group_ids is not None:
        columns["uid"] = np.array(batch.group_ids, dtype=object)
    if name not in columns:
        raise LoadError.build(
            key=option,
            expected="the name of a column with one value a row",
            found=f"{name!r}, where there are {format_names(columns)}",
            advice="Pass one of them.",
        )
    return columns[name]


def _order_by(name: str, keys: Sequence[Any]) -> StepOrder:
    return StepOrder(description=f"ordered by `{name}`", column=name, keys=keys)


def _requested_keys(batch: Batch, name: str) -> list[Any]:
    values = named_column(batch, name, "order_by")
    keys = sort_keys(values)
    if keys is None:
        raise LoadError.build(
            key="order_by",
            expected=f"numbers, or texts, in all rows of the column {name!r}",
            found=format_names(map(repr, values.tolist())),
            advice="Pass another column, or none for the order of the file.",
        )
    return keys


def _changes(keys: Sequence[Any], trajectories: Collection[Rows]) -> bool:
    """Return whether keys differ within a trajectory; the trainer's step does not."""
    several = [rows for rows in trajectories if len(rows) > 1]
    return not several or any(
        keys[i] != keys[rows[0]] for rows in several for i in rows
    )


def _is_whole(value: object) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def _is_distinct(keys: Sequence[Any], trajectories: Collection[Rows]) -> bool:
    return all(len({keys[i] for i in rows}) == len(rows) for rows in trajectories)


# Columns that together identify a trajectory: of verl-agent, rLLM (whose
# `trajectory_ids` are the same in all rollouts of a task), Agent-Lightning, DART-GUI
# and ROLL.
GROUPINGS = (
    ("traj_uid",),
    ("episode_ids", "trajectory_ids"),
    ("rollout_id_list",),
    ("dataset_ids",),
    ("traj_id",),
)


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """The rows of each trajectory.

    Attributes
    ----------
    rows : array of int
        All rows of the batch, grouped by trajectory and in order.
    sizes : array of int
        How many rows each trajectory has.
    names : tuple of str
        The name of each.
    order : str
        How its rows are ordered, for `meta["rows"]`.
    """

    rows: Array
    sizes: Array
    names: tuple[str, ...]
    order: str


def with_join_hint(batch: Batch) -> Batch:
    """Say in `meta["rows"]` that rows are steps and how to join them, if they are."""
    for names in GROUPINGS:
        if "rows" in batch.meta or not {*names} <= batch.sample_columns.keys():
            continue
        values = zip(*(batch.sample_columns[n].tolist() for n in names), strict=True)
        if len(set(map(repr, values))) < len(batch):
            by = repr(names[0]) if len(names) == 1 else repr([*names])
            hint = (
                f"rows are steps of trajectories: load(..., sample_by={by}) joins them"
            )
            return replace(batch, meta={**batch.meta, "rows": hint})
    return batch


def find_trajectories(
    batch: Batch, sample_by: Sequence[str], order_by: str | None
) -> Trajectories:
    """Find the rows that have the same values in the columns of `sample_by`.

    A row without a value there is a trajectory of its own. Trajectories are in the
    order of their first rows.

    Parameters
    ----------
    batch : Batch
    sample_by : sequence of str
        Names in `sample_columns`, or `uid`.
    order_by : str, optional
        The column that counts the steps: numbers, or texts with a number. By default a
        known column, else the order of the file.

    Raises
    ------
    LoadError
        If there is no such column, `order_by` cannot be sorted, or two rows of a
        trajectory have the same step.
    """
    columns = [named_column(batch, name, "sample_by") for name in sample_by]
    found: dict[tuple[str, ...], list[int]] = {}
    for row, values in enumerate(zip(*columns, strict=True)):
        is_alone = any(map(is_absent, values))
        label = (f"row {row}",) if is_alone else tuple(map(str, values))
        found.setdefault(label, []).append(row)
    order = step_order(batch, order_by, found.values())
    rows = [order.sorted(some) for some in found.values()]
    names = tuple(map("_".join, found))
    if order.column:
        _check_steps(batch, order, zip(names, rows, strict=True))
    return Trajectories(
        rows=np.array([row for some in rows for row in some], dtype=np.int64),
        sizes=np.array([len(some) for some in rows], dtype=np.int64),
        names=names,
        order=order.description,
    )


def _check_steps(batch: Batch, order: StepOrder, named: Iterable[Named]) -> None:
    """Raise a LoadError for the first two rows with the same step of a trajectory."""
    for name, rows in named:
        for one, other in pairwise(rows):
            if order.keys[one] == order.keys[other]:
                step = named_column(batch, order.column, "order_by")[one]
                raise LoadError.build(
                    key=order.column,
                    expected="one row a step of each trajectory",
                    found=f"rows {one} and {other}, both step {step!s:.40} of"
                    f" trajectory {name!r:.80}",
                    advice="Remove one of them, or pass the columns that distinguish"
                    " the trajectories as `sample_by`.",
                )


_KEYS = ("sample", "round", "row")  # of the round columns of what was joined


def join_rows(
    batch: Batch, sample_by: str | Sequence[str], order_by: str | None = None
) -> Batch:
    """Join the rows of each trajectory into one sample.

    Parameters
    ----------
    batch : Batch
        One row a step.
    sample_by : str or sequence of str
        The columns that identify a trajectory: of `sample_columns`, or `uid`.
    order_by : str, optional
        The column that counts the steps of a trajectory; see `find_trajectories`.

    Returns
    -------
    Batch
        One sample a trajectory, without padding. The round column `row` is the row of
        the file; the sample column `num_rows` counts the rows of a trajectory.

    Raises
    ------
    LoadError
        If a column does not exist or cannot be sorted.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> kinds = join_rows(batch, "task_kind")
    >>> kinds.num_samples, kinds.num_tokens == batch.num_tokens
    (3, True)
    """
    names = (sample_by,) if isinstance(sample_by, str) else tuple(sample_by)
    found = find_trajectories(batch, names, order_by)
    rows = select(batch, torch.from_numpy(found.rows))
    steps = StepInterleaver(rows, found.sizes)
    heads = select(rows, torch.from_numpy(steps.first))
    differing = {k: v for k, v in _columns(rows).items() if not _agree(v, steps)}
    joined = replace(
        heads,
        **steps.fields(),
        rewards=None if rows.rewards is None else rows.rewards[steps.last],
        group_ids=None if "row_group_id" in differing else heads.group_ids,
        sample_ids=found.names,
        position_ids=None,
        sample_columns={
            **{k: v for k, v in heads.sample_columns.items() if k not in differing},
            "num_rows": found.sizes,
        },
        round_columns=_round_columns(rows, steps, differing),
        meta=_meta(
            batch, differing, f"{_join_note(names, found.sizes)}, {found.order}"
        ),
    )
    return replace(joined, round_ids=round_ids_with_breaks(joined, steps.breaks))


def _columns(rows: Batch) -> dict[str, Array]:
    """Return what has one value a row, except the row number."""
    known = {
        "row_id": rows.sample_ids,
        "row_group_id": rows.group_ids,
        "row_reward": None if rows.rewards is None else rows.rewards.tolist(),
    }
    arrays = {k: np.array(v) for k, v in known.items() if v is not None}
    return {**arrays, **rows.sample_columns}


def _agree(column: Array, steps: StepInterleaver) -> bool:
    """Return whether all rows of each trajectory have the same value."""
    pairs = zip(
        column.tolist(), column[steps.first][steps.sample].tolist(), strict=True
    )
    return all(a == b or (a != a and b != b) for a, b in pairs)  # noqa: PLR0124 NaN


def _round_columns(
    rows: Batch, steps: StepInterleaver, differing: dict[str, Array]
) -> dict[str, Array]:
    row = rows.rounds.sample.numpy()
    others = {
        **{name: column[row] for name, column in differing.items()},
        **{name: round_values(rows, name) for name in rows.round_columns},
    }
    return {
        "sample": steps.sample[row],
        "round": rows.rounds.round.numpy() + steps.rounds_before[row],
        "row": rows.sample_columns[ORIGINAL_SAMPLE.name][row],
        **{k: v for k, v in others.items() if k not in {*_KEYS, ORIGINAL_SAMPLE.name}},
    }


def _join_note(names: tuple[str, ...], sizes: Array) -> str:
    columns = ", ".join(f"`{name}`" for name in names)
    return f"{sizes.sum()} rows joined into {len(sizes)} samples by {columns}"


def _num_lost(batch: Batch) -> int:
    """Count the rows of `round_columns` that belong to no round of the mask."""
    if not batch.round_columns:
        return 0
    taken = round_values(batch, "sample") == batch.rounds.sample.numpy()
    return len(batch.round_columns["sample"]) - int(np.count_nonzero(taken))


def _meta(batch: Batch, differing: dict[str, Array], note: str) -> dict[str, Any]:
    lost = [name for name in _KEYS if name in differing]
    lost += ["position_ids"] * (batch.position_ids is not None)
    if num_lost := _num_lost(batch):
        lost.append(f"{pluralize(num_lost, 'row')} of `round_columns`")
    left_out = left_out_entry([*left_out_of(batch), *lost])
    meta = {**batch.meta, "rows": note, **left_out}
    if isinstance(facts := meta.get("screenshots"), list):
        meta["screenshots"] = [re.sub("^sample ", "row ", str(f)) for f in facts]
    return meta

"""Which rows of a batch are steps of one trajectory, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import LoadError
from rounddiag.loaders.joining.step_order import StepOrder, named_column, step_order
from rounddiag.loaders.natural_order import is_absent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]
    Named = tuple[str, Sequence[int]]

# Columns that together name a trajectory: of verl-agent, rLLM (whose `trajectory_ids`
# are the same in all rollouts of a task), Agent-Lightning, DART-GUI and ROLL.
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
        All rows of the batch, those of one trajectory together and in order.
    sizes : array of int
        How many rows each trajectory has.
    names : tuple of str
        What each is called.
    order : str
        By what its rows were put in order, in words.
    """

    rows: Array
    sizes: Array
    names: tuple[str, ...]
    order: str


def with_hint(batch: Batch) -> Batch:
    """Say in `meta["rows"]` where rows are known to be steps, and how to join them."""
    for names in GROUPINGS:
        if "rows" in batch.meta or not {*names} <= batch.sample_columns.keys():
            continue
        values = zip(*(batch.sample_columns[n].tolist() for n in names), strict=True)
        if len(set(map(repr, values))) < len(batch):
            by = repr(names[0]) if len(names) == 1 else repr([*names])
            told = (
                f"rows are steps of trajectories: load(..., sample_by={by}) joins them"
            )
            return replace(batch, meta={**batch.meta, "rows": told})
    return batch


def find_trajectories(
    batch: Batch, sample_by: Sequence[str], order_by: str | None
) -> Trajectories:
    """Find the rows that have the same values in the columns of `sample_by`.

    A row without a value there is a trajectory of its own. Trajectories stand in the
    order of their first rows.

    Parameters
    ----------
    batch : Batch
    sample_by : sequence of str
        Names in `sample_columns`, or `uid`.
    order_by : str, optional
        The column that counts the steps: numbers, or texts with a number. Left out, it
        is a known one, else the rows stay in the order of the file.

    Raises
    ------
    LoadError
        If there is no such column, `order_by` cannot be put in order, or two rows of a
        trajectory are one step.
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
        order=order.told,
    )


def _check_steps(batch: Batch, order: StepOrder, named: Iterable[Named]) -> None:
    """Raise a LoadError for the first two rows that are one step of a trajectory."""
    for name, rows in named:
        for one, other in pairwise(rows):
            if order.keys[one] == order.keys[other]:
                step = named_column(batch, order.column, "order_by")[one]
                raise LoadError.build(
                    key=order.column,
                    expected="one row a step of each trajectory",
                    found=f"rows {one} and {other}, both step {step!s:.40} of"
                    f" trajectory {name!r:.80}",
                    advice="Drop one of them, or name the columns that tell the"
                    " trajectories apart in `sample_by`.",
                )

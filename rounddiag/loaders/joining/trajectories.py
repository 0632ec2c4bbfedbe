"""Which rows of a batch are steps of one trajectory, and in which order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import LoadError
from rounddiag.loaders.natural_order import is_absent, sort_keys
from rounddiag.loaders.words import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]

# Columns that together name a trajectory: of verl-agent, rLLM (whose `trajectory_ids`
# are the same in all rollouts of a task), Agent-Lightning, DART-GUI and ROLL.
GROUPINGS = (
    ("traj_uid",),
    ("episode_ids", "trajectory_ids"),
    ("rollout_id_list",),
    ("dataset_ids",),
    ("traj_id",),
)
# Columns that count the steps: of Agent-Lightning, rLLM, DART-GUI and ROLL.
_ORDERS = ("turn_index_list", "step_ids", "step_idx", "step")
_UNORDERED = "in the order of the file, as no column counts the steps"


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
        If there is no such column, or `order_by` cannot be put in order.
    """
    columns = [_column(batch, name, "sample_by") for name in sample_by]
    found: dict[tuple[str, ...], list[int]] = {}
    for row, values in enumerate(zip(*columns, strict=True)):
        is_alone = any(map(is_absent, values))
        label = (f"row {row}",) if is_alone else tuple(map(str, values))
        found.setdefault(label, []).append(row)
    order, keys = (
        _order(batch) if order_by is None else (order_by, _asked(batch, order_by))
    )
    rows = [
        sorted(some, key=keys.__getitem__) if keys else some for some in found.values()
    ]
    return Trajectories(
        rows=np.array([row for some in rows for row in some], dtype=np.int64),
        sizes=np.array([len(some) for some in rows], dtype=np.int64),
        names=tuple(map("_".join, found)),
        order=f"ordered by `{order}`" if order else _UNORDERED,
    )


def _column(batch: Batch, name: str, option: str) -> Array:
    columns = dict(batch.sample_columns)
    if batch.group_ids is not None:
        columns["uid"] = np.array(batch.group_ids, dtype=object)
    if name not in columns:
        raise LoadError.build(
            key=option,
            expected="the name of a column with one value a row",
            found=f"{name!r}, where there are {shown(columns)}",
            advice="Pass one of them.",
        )
    return columns[name]


def _order(batch: Batch) -> tuple[str, list[Any]]:
    """Return the known column that counts the steps, and its keys, if there is one."""
    for name in _ORDERS:
        keys = sort_keys(batch.sample_columns.get(name))
        if keys is not None:
            return name, keys
    return "", []


def _asked(batch: Batch, name: str) -> list[Any]:
    values = _column(batch, name, "order_by")
    keys = sort_keys(values)
    if keys is None:
        raise LoadError.build(
            key="order_by",
            expected=f"numbers, or texts, in all rows of the column {name!r}",
            found=shown(map(repr, values.tolist())),
            advice="Pass another column, or none for the order of the file.",
        )
    return keys

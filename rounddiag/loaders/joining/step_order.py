"""The column that counts the steps of a trajectory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import LoadError
from rounddiag.loaders.natural_order import sort_keys
from rounddiag.loaders.words import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]
    Rows = Sequence[int]

# Columns that count the steps: of Agent-Lightning, rLLM, DART-GUI and ROLL.
_OF_FRAMEWORKS = ("turn_index_list", "step_ids", "step_idx", "step")
# Names that are other things too: they count where they hold distinct whole numbers.
_USUAL = (
    *("turn", "turn_idx", "turn_id", "turn_index", "step_index", "step_id"),
    *("env_step", "round", "round_idx"),
)


@dataclass(frozen=True, kw_only=True)
class StepOrder:
    """What puts the rows of a trajectory in order.

    Attributes
    ----------
    told : str
        In words.
    column : str
        Its name; empty where the rows stay as they are.
    keys : list
        One a row, that sort; empty as well.
    """

    told: str
    column: str = ""
    keys: Sequence[Any] = ()

    def sorted(self, rows: Rows) -> Rows:
        """Put the rows of one trajectory in order."""
        return sorted(rows, key=self.keys.__getitem__) if self.keys else rows


def step_order(
    batch: Batch, order_by: str | None, trajectories: Collection[Rows]
) -> StepOrder:
    """Find the column that counts the steps: the one that is asked for, or a known one.

    Raises
    ------
    LoadError
        If the column that is asked for is not there or cannot be put in order.
    """
    if order_by is not None:
        return _by(order_by, _asked(batch, order_by))
    for name in _OF_FRAMEWORKS:
        keys = sort_keys(batch.sample_columns.get(name))
        if keys is not None and _changes(keys, trajectories):
            return _by(name, keys)
    present = [name for name in _USUAL if name in batch.sample_columns]
    for name in present:
        keys = batch.sample_columns[name].tolist()
        if all(map(_is_whole, keys)) and _is_distinct(keys, trajectories):
            return _by(name, keys)
    why = f", as {', '.join(f'`{name}`' for name in present)} cannot be their numbers"
    unknown = ", as no known column counts the steps (pass `order_by`)"
    return StepOrder(told=f"in the order of the file{why if present else unknown}")


def named_column(batch: Batch, name: str, option: str) -> Array:
    """Return a column by name; the option that named it is told where there is none.

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
            found=f"{name!r}, where there are {shown(columns)}",
            advice="Pass one of them.",
        )
    return columns[name]


def _by(name: str, keys: Sequence[Any]) -> StepOrder:
    return StepOrder(told=f"ordered by `{name}`", column=name, keys=keys)


def _asked(batch: Batch, name: str) -> list[Any]:
    values = named_column(batch, name, "order_by")
    keys = sort_keys(values)
    if keys is None:
        raise LoadError.build(
            key="order_by",
            expected=f"numbers, or texts, in all rows of the column {name!r}",
            found=shown(map(repr, values.tolist())),
            advice="Pass another column, or none for the order of the file.",
        )
    return keys


def _changes(keys: Sequence[Any], trajectories: Collection[Rows]) -> bool:
    """Tell steps of a trajectory from the trainer's step, which is one for all."""
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

"""Conditions on a column, and the rows that meet them: an unknown value meets none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from rounddiag._typing import Array
    from rounddiag.columns.column import Column

Relation: TypeAlias = Literal["=", ">=", "<="]


def meets(codes: Array, relation: Relation, code: int) -> Array:
    """Mark the codes of a column that stand in a relation to one of them.

    Examples
    --------
    >>> import numpy as np
    >>> meets(np.array([0, -1, 2, 1]), "<=", 1)
    array([ True, False, False,  True])
    """
    rows: Array = codes >= (0 if relation == "<=" else code)
    return rows if relation == ">=" else rows & (codes <= code)


def rows_between(column: Column, low: float, high: float) -> Array:
    """Mark the rows whose value is a number from `low` to `high`.

    Examples
    --------
    >>> import numpy as np
    >>> from rounddiag.columns import Column
    >>> reward = Column.of("reward", "sample", np.array([0.5, np.nan, 2.0]))
    >>> rows_between(reward, 0.0, 1.0)
    array([ True, False, False])
    """
    rows = column.is_known().copy()
    values = column.values()
    rows[rows] = (low <= values) & (values <= high)
    return rows

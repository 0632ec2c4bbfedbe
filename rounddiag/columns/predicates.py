"""Conditions on a column, and the rows that meet them: an unknown value meets none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from rounddiag._typing import Array
    from rounddiag.columns.column import Column

Relation: TypeAlias = Literal["=", ">=", "<="]


def meets(codes: Array, relation: Relation, code: int) -> Array:
    """Mark the codes of a column that stand in a relation to one of them.

    Examples
    --------
    >>> meets(np.array([0, -1, 2, 1]), "<=", 1)
    array([ True, False, False,  True])
    """
    is_known: Array = codes >= 0
    if relation == "=":
        return is_known & (codes == code)
    return is_known & (codes >= code if relation == ">=" else codes <= code)


def rows_between(column: Column, low: float, high: float) -> Array:
    """Mark the rows whose value is a number from `low` to `high`.

    Examples
    --------
    >>> from rounddiag.columns import Column
    >>> reward = Column.of("reward", "sample", np.array([0.5, np.nan, 2.0]))
    >>> rows_between(reward, 0.0, 1.0)
    array([ True, False, False])
    """
    rows = column.is_known().copy()
    values = column.values()
    rows[rows] = (low <= values) & (values <= high)
    return rows


def rows_among(column: Column, wanted: Collection[object]) -> Array:
    """Mark the rows whose value is one of these.

    Examples
    --------
    >>> from rounddiag.columns import Column
    >>> status = Column.of("status", "round", np.array(["ok", None, "lost"], object))
    >>> rows_among(status, ["ok", None])
    array([ True, False, False])
    """
    codes, values = column.codes()
    chosen = [code for code, value in enumerate(values.tolist()) if value in wanted]
    return np.isin(codes, chosen)

"""Conditions on a column, and the rows that meet them: an unknown value meets none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rounddiag._typing import Array
from rounddiag.columns.column import Column
from rounddiag.columns.phrases import condition_value

Relation: TypeAlias = Literal["=", ">=", "<=", "in"]
# Columns in the order in which a sentence says them; others are between the two parts.
_SAID_FIRST = ("role", "token_id", "first_tokens", "last_tokens")
_SAID_LAST = (
    *("num_rounds", "round", "last_round", "images_seen", "decoding_step"),
    *("since_image", "after_image", "context_length", "last_of_longest"),
)


@dataclass(frozen=True)
class Condition:
    """One condition on one column, such as `rank = 3` or `round >= 5`.

    Attributes
    ----------
    value: A number, a text, or a bool; a tuple of them for `in`.
    text: The condition as part of a sentence: "on rank 3", "from round 5 on".
    label: What the value stands for: the text of a token id, or a set of samples.

    Examples
    --------
    >>> print(Condition("round", ">=", 5, "from round 5 on"))
    round >= 5
    """

    column: str
    relation: Relation
    value: object
    text: str
    label: str = ""

    def __str__(self) -> str:
        return (
            f"{self.column} {self.relation} {condition_value(self.value, self.label)}"
        )


def sort_for_sentence(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Sort conditions: what is written, who wrote it, when."""

    def place(condition: Condition) -> int:
        if condition.column in _SAID_FIRST:
            return _SAID_FIRST.index(condition.column) - len(_SAID_FIRST)
        return (
            _SAID_LAST.index(condition.column) + 1
            if condition.column in _SAID_LAST
            else 0
        )

    return tuple(sorted(conditions, key=place))


def meets(codes: Array, relation: Relation, code: int) -> Array:
    """Mark the codes, counted from 1 and 0 where unknown, that meet a condition.

    Examples
    --------
    >>> import numpy as np
    >>> meets(np.array([1, 0, 3, 2]), "<=", 1)
    array([ True, False, False,  True])
    """
    if relation in ("=", "in"):
        rows: Array = codes == code + 1
    elif relation == ">=":
        rows = codes >= code + 1
    else:
        rows = (codes <= code + 1) & (codes > 0)
    return rows


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

"""Natural order: 9 before 10, also in names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def by_numbers(text: str) -> list[tuple[str, int]]:
    """Return a key that sorts `rank_10` after `rank_9`.

    Examples
    --------
    >>> sorted(["b_10", "b_9", "a_11"], key=by_numbers)
    ['a_11', 'b_9', 'b_10']
    """
    return [(part, int(n or 0)) for part, n in re.findall(r"(\D*)(\d*)", text)]


def sort_keys(values: np.ndarray[Any, Any] | None) -> list[Any] | None:
    """Return sort keys of values, texts by the numbers in them.

    None if there are no values, or they are neither all numbers nor all texts.

    Examples
    --------
    >>> import numpy as np
    >>> sort_keys(np.array([3, 1])), sort_keys(np.array([None]))
    ([3, 1], None)
    """
    items: list[Any] = [None] if values is None else values.tolist()
    if all(isinstance(v, int | float) and not is_absent(v) for v in items):
        return items
    if all(isinstance(value, str) for value in items):
        return [by_numbers(value) for value in items]
    return None


def is_absent(value: object) -> bool:
    """Return whether a value is None or NaN."""
    return value is None or value != value  # noqa: PLR0124 NaN alone is not itself

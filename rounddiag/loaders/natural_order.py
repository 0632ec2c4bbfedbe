"""The order in which people count: 9 before 10, in names too."""

from __future__ import annotations

import re


def by_numbers(text: str) -> list[tuple[str, int]]:
    """Return a key that sorts `rank_10` after `rank_9`.

    Examples
    --------
    >>> sorted(["b_10", "b_9", "a_11"], key=by_numbers)
    ['a_11', 'b_9', 'b_10']
    """
    return [(part, int(n or 0)) for part, n in re.findall(r"(\D*)(\d*)", text)]

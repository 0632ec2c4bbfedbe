"""Where an expression matches in texts.

Run as a script it reads expression and texts from its input: a process of its own can
be ended while an expression backtracks, which takes for ever with some. It imports
nothing of the package, so that it starts fast.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def matched(pattern: str, texts: Sequence[str]) -> list[tuple[int, int]]:
    """Return what matches cover, counted over all texts end to end.

    Parameters
    ----------
    pattern : str
        A regular expression.
    texts : sequence of str
        No match reaches from one into the next.

    Returns
    -------
    list of tuple of int
        Start and stop, in order; matches that touch are one, those of no character
        are none.

    Examples
    --------
    >>> matched("a+|b", ["xaab", "ab"]), matched("q*", ["xx"])
    ([(1, 4), (4, 6)], [])
    """
    expression = re.compile(pattern)
    found: list[tuple[int, int]] = []
    first = 0
    for text in texts:
        reached = -1
        for match in expression.finditer(text):
            start, stop = match.span()
            if start == reached:
                found[-1] = (found[-1][0], first + stop)
            elif start < stop:
                found.append((first + start, first + stop))
            reached = stop if start < stop else reached
        first += len(text)
    return found


if __name__ == "__main__":
    json.dump(matched(*json.load(sys.stdin)), sys.stdout)

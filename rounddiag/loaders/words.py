"""Names of a file in the messages of loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.checks.words import listed

if TYPE_CHECKING:
    from collections.abc import Iterable


def shown(names: Iterable[object]) -> str:
    """Return names of fields for a message: not too many, not too long.

    Examples
    --------
    >>> shown(["step", "reward"]), shown([])
    ('step, reward', 'nothing')
    """
    short = [f"{name!s:.40}" for name in names]
    return listed(short, len(short), most=12) or "nothing"

"""What a file has and its Batch has not: named in `meta["left_out"]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from rounddiag.batch import Batch


def left_out_of(batch: Batch) -> list[str]:
    """Return what was left out so far; a file may say anything there."""
    found = batch.meta.get("left_out")
    return [str(name) for name in found] if isinstance(found, list) else []


def told_left_out(names: Collection[str]) -> dict[str, list[str]]:
    """Return the entry of `meta` for what is left out; none where nothing is.

    Examples
    --------
    >>> told_left_out({"kl", "chat"}), told_left_out([])
    ({'left_out': ['chat', 'kl']}, {})
    """
    return {"left_out": sorted(names)} if names else {}

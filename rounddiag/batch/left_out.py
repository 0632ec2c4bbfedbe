"""The names in `meta["left_out"]`: what a file has that a batch does not."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rounddiag.batch.batch import Batch


def left_out_of(batch: Batch) -> list[str]:
    """Return the names in `meta["left_out"]`, which a file may have filled."""
    return left_out_in(batch.meta)


def left_out_in(meta: Mapping[str, object]) -> list[str]:
    """Return the names that an entry of `meta` lists as left out."""
    names = meta.get("left_out")
    return [str(name) for name in names] if isinstance(names, list) else []


def left_out_entry(names: Collection[str]) -> dict[str, list[str]]:
    """Return the entry of `meta` that names what is left out, if anything is.

    Examples
    --------
    >>> left_out_entry({"kl", "chat"}), left_out_entry([])
    ({'left_out': ['chat', 'kl']}, {})
    """
    return {"left_out": sorted(names)} if names else {}

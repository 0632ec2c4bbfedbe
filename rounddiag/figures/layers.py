"""Parts of a figure that can be left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.errors import FrameError

if TYPE_CHECKING:
    from collections.abc import Mapping


def layers_of(chosen: Mapping[str, bool] | None, *known: str) -> dict[str, bool]:
    """Say of each layer whether it is drawn: all are, unless chosen otherwise.

    Raises
    ------
    FrameError
        If a layer is unknown.

    Examples
    --------
    >>> layers_of({"strip": False}, "strip", "means")
    {'strip': False, 'means': True}
    """
    chosen = chosen or {}
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise FrameError.build(
            key="layers",
            expected=f"names out of {list(known)}",
            found=str(unknown),
            advice="`{name: False}` leaves a layer out.",
        )
    return {name: bool(chosen.get(name, True)) for name in known}

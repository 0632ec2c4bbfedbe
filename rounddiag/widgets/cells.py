"""One explorer a cell of a notebook: the next one there closes the last."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rounddiag.widgets.explorer import Explorer

_shown: weakref.WeakValueDictionary[str, Explorer] = weakref.WeakValueDictionary()


def replace_in_cell(explorer: Explorer) -> None:
    """Close the explorer that the running cell showed the last time it ran."""
    cell = _running_cell()
    if cell is None:
        return
    last = _shown.get(cell)
    if last is not None and last is not explorer:
        last.close()
    _shown[cell] = explorer


def _running_cell() -> str | None:
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)()
    cell = parent.get("metadata", {}).get("cellId")
    return cell if isinstance(cell, str) else None

"""Explorers in cells of a notebook: one that runs again closes what it showed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from rounddiag.widgets.explorer import Explorer

# What each cell showed when it last ran, and in which run that was.
_shown: dict[str, tuple[str, WeakSet[Explorer]]] = {}


def replace_in_cell(explorer: Explorer) -> None:
    """Close the explorers that the running cell showed the last time it ran."""
    cell, run = _running()
    if cell is None:
        return
    last_run, explorers = _shown.get(cell, (run, WeakSet()))
    if last_run != run:
        for last in explorers - {explorer}:
            last.close()
        explorers = WeakSet()
    explorers.add(explorer)
    _shown[cell] = (run, explorers)


def _running() -> tuple[str | None, str]:
    """Return the ids of the running cell and of this run of it."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()  # type: ignore[no-untyped-call, unused-ignore]
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)()
    cell = parent.get("metadata", {}).get("cellId")
    run = parent.get("header", {}).get("msg_id", "")
    return (cell if isinstance(cell, str) else None), run

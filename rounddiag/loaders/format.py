"""`Format`: how to recognise a file, how to read it, and what that was tested on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from rounddiag.batch import Batch
from rounddiag.loaders.assembly.turns import Trajectory
from rounddiag.loaders.source import Source


@dataclass(frozen=True, kw_only=True)
class Format:
    """One file format.

    Attributes
    ----------
    name: its name in messages and tables.
    framework: what writes it.
    files: patterns of file names, for `PurePath.match`.
    keys: names that identify it, all required: keys of a dictionary or of a JSON
        line, columns of a table, the class of an object.
    read: builds a Batch from the content of a file and its source.
    verified: which writer wrote the file that this was tested on; empty if the test
        file was made from the writer's source code.
    in_parts: whether one step may be split over several files.
    trajectories: reads the same as `Trajectory` objects, for `attach`.
    reason: what a file of it lacks, if it cannot be opened; `read` raises that
        error.
    """

    name: str
    framework: str
    files: tuple[str, ...]
    keys: tuple[str, ...]
    read: Callable[[Any, Source], Batch]
    verified: str = ""
    in_parts: bool = False
    trajectories: Callable[[Any, Source], Iterable[Trajectory]] | None = None
    reason: str = ""

    def missing_keys(self, names: Collection[str]) -> list[str]:
        """Return the keys that are not among `names`."""
        return [key for key in self.keys if key not in names]

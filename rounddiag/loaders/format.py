"""What tells one format of file from another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format: how to know it, how to read it, and on what that was checked.

    Attributes
    ----------
    name : str
        What the format is called in messages and tables.
    framework : str
        What writes it.
    files : tuple of str
        Patterns of the files to look for: the end of a path, as `PurePath.match` has
        it.
    keys : tuple of str
        Names that must all be there for a file to be of this format: keys of a
        dictionary or of a JSON line, columns of a table, the class of an object.
    read : callable
        Turns what the file holds, and its source, into a Batch.
    verified : str
        Which writer wrote the file that this was tested on; empty where the file was
        laid out from the writer's source.
    in_parts : bool
        Whether one step may be divided over several files.
    """

    name: str
    framework: str
    files: tuple[str, ...]
    keys: tuple[str, ...]
    read: Callable[[Any, Source], Batch]
    verified: str = ""
    in_parts: bool = False

    def missing(self, names: Collection[str]) -> list[str]:
        """Return which of the keys are not among `names`."""
        return [key for key in self.keys if key not in names]

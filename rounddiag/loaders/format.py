"""`Format`: how to recognise a file, how to read it, and what that was tested on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from rounddiag.batch import Batch
from rounddiag.loaders.assembly.trajectory_batch import batch_of
from rounddiag.loaders.assembly.turns import Transcript
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
        line, columns of a table, the class of an object. A tuple stands for any one
        of its names.
    read: builds a Batch from the content of a file and its source; left out where
        `trajectories` does.
    verified: which writer wrote the file that this was tested on; empty if the test
        file was made from the writer's source code.
    in_parts: whether one step may be split over several files.
    trajectories: reads the content as `Transcript` objects, also for `attach`.
    reason: what a file of it lacks, if it cannot be opened; `advice` follows it.
    """

    name: str
    framework: str
    files: tuple[str, ...]
    keys: tuple[str | tuple[str, ...], ...]
    read: Callable[[Any, Source], Batch] | None = None
    verified: str = ""
    in_parts: bool = False
    trajectories: Callable[[Any, Source], Iterable[Transcript]] | None = None
    reason: str = ""
    advice: str = ""

    def fits(self, names: Collection[str]) -> bool:
        """Return whether the names of some content have all keys."""
        return all(any(key in names for key in choice) for choice in self._choices)

    @property
    def is_general(self) -> bool:
        """Whether any program may write it."""
        return self.framework.startswith("any")

    @property
    def names(self) -> list[str]:
        """The names of all keys."""
        return [key for choice in self._choices for key in choice]

    @property
    def _choices(self) -> list[tuple[str, ...]]:
        return [(key,) if isinstance(key, str) else key for key in self.keys]

    def batch(self, root: Any, source: Source) -> Batch:  # noqa: ANN401 of any file
        """Build a Batch from the content of a file; a LoadError with its `reason`."""
        if self.read is not None:
            return self.read(root, source)
        if self.trajectories is not None:
            return batch_of(self.trajectories(root, source), source)
        raise source.error(
            expected="a saved batch",
            found=f"{self.name}: {self.reason}",
            advice=self.advice,
        )

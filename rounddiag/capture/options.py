"""What a Recorder was asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rounddiag.errors import BatchError


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a Recorder, checked; see there.

    Raises
    ------
    BatchError
        If one has no meaning.

    Examples
    --------
    >>> options = Options(folder="/data/diag", every=10)
    >>> [step for step in range(25) if options.is_due(step)]
    [0, 10, 20]
    >>> options.file_name(20)
    'step_20.parquet'
    """

    folder: str
    every: int = 10
    images: int = 8
    max_samples: int | None = None
    seed: int = 0
    rank: int | None = None

    def __post_init__(self) -> None:
        for name, lowest in (
            ("every", 1),
            ("images", 0),
            ("max_samples", 1),
            ("seed", 0),
        ):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= lowest):
                raise BatchError.build(
                    key=name,
                    expected=f"an integer of at least {lowest}",
                    found=repr(value),
                    advice="Pass another number to `Recorder`.",
                )

    def is_due(self, step: int) -> bool:
        """Whether a step is one of those to record."""
        return step % self.every == 0

    def file_name(self, step: int) -> str:
        """Return the name of a step's file."""
        rank = "" if self.rank is None else f"_rank_{self.rank}"
        return f"step_{step}{rank}.parquet"


def is_url(folder: str) -> bool:
    """Whether it names object storage, such as `s3://bucket/run`."""
    return "://" in folder


def absolute(folder: str | os.PathLike[str]) -> str:
    """Return a path that holds in another working directory too; a URL as it is."""
    name = os.fspath(folder)
    return name if is_url(name) else str(Path(name).absolute())

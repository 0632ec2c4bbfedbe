"""The options of a Recorder, and the folder it writes to."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from operator import index
from pathlib import Path

from rounddiag.errors import BatchError

_MINIMUM = {"every": 1, "images": 0, "max_samples": 1, "seed": 0}
_STALE_AFTER = 3600.0  # seconds; another process may still write a younger file


@dataclass(frozen=True, kw_only=True)
class Options:
    """The validated options of a `Recorder`, which documents them.

    Raises
    ------
    BatchError
        If an option is out of range, or `folder` is a URL and `fsspec` is missing.

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
        if is_url(self.folder) and find_spec("fsspec") is None:
            raise BatchError.build(
                key="folder",
                expected="a folder, or the package fsspec for a URL",
                found=f"{self.folder!r} without fsspec",
                advice="Install fsspec and the backend of your storage: `pip install"
                " fsspec s3fs` for S3, gcsfs for Google Cloud, adlfs for Azure.",
            )
        for name, minimum in _MINIMUM.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= minimum):
                raise BatchError.build(
                    key=name,
                    expected=f"an integer of at least {minimum}",
                    found=repr(value),
                    advice="Pass another number to `Recorder`.",
                )

    def is_due(self, step: int) -> bool:
        """Whether a step is recorded."""
        try:
            return index(step) % self.every == 0
        except TypeError:
            raise BatchError.build(
                key="step",
                expected="the trainer's global step, an integer",
                found=f"{step!r:.80}",
                advice="Pass the step first, then the batch.",
            ) from None

    def file_name(self, step: int) -> str:
        """Return the name of a step's file."""
        rank = "" if self.rank is None else f"_rank_{self.rank}"
        return f"step_{step}{rank}.parquet"


def is_url(folder: str) -> bool:
    """Whether a folder is in object storage, such as `s3://bucket/run`."""
    return "://" in folder


def absolute_folder(folder: str | os.PathLike[str]) -> str:
    """Return the absolute path of a folder, or a URL unchanged."""
    name = os.fspath(folder)
    return name if is_url(name) else str(Path(name).absolute())


def remove_stale_files(folder: str) -> None:
    """Remove partial files that a killed training left behind over an hour ago.

    Object storage is left alone.
    """
    if is_url(folder):
        return
    with suppress(OSError):
        for file in Path(folder).glob(".step_*.parquet.*.partial"):
            if file.stat().st_mtime < time.time() - _STALE_AFTER:
                file.unlink()

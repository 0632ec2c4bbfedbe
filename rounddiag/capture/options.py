"""The options of a Recorder, and the folder it writes to."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rounddiag.capture.facts import plain_facts
from rounddiag.capture.weights import remove_partial_files
from rounddiag.capture.writer import Writer
from rounddiag.errors import BatchError
from rounddiag.loaders.paths import is_url

if TYPE_CHECKING:
    from rounddiag.findings import Diagnosis


_MINIMUM = {"every": 1, "images": 0, "prove_samples": 0, "max_samples": 1, "seed": 0}
COPY = "rounddiag_judged_"  # begins the name of a temporary copy of a step
_STALE_AFTER = 3600.0  # seconds; another process may still write a younger file


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a `Recorder`, which documents them.

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
    prove_samples: int = 4
    max_samples: int | None = None
    seed: int = 0
    rank: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: str | None = None
    diagnose: bool | None = None
    on_verdict: Callable[[Diagnosis, str], object] | None = None

    @classmethod
    def checked(cls, writer: Writer, **given: Any) -> Options:  # noqa: ANN401 as given
        """Return the options that can be used; the others are logged, and defaults."""
        options: dict[str, Any] = {"folder": ""}
        for name, value in given.items():
            with writer.guard("the Recorder", done=f"set up with its `{name}`"):
                options[name] = _CHECKS[name](value) if name in _CHECKS else value
        return cls(**options)

    def is_due(self, step: int) -> bool:
        """Return whether a step is recorded."""
        try:
            is_due = index(step) % self.every == 0
        except TypeError:
            raise BatchError.build(
                key="step",
                expected="the trainer's global step, an integer",
                found=f"{step!r:.80}",
                advice="Pass the step first, then the batch.",
            ) from None
        if is_due and not self.folder:
            raise BatchError.build(
                key="folder",
                expected="a folder that `Recorder` can use",
                found="none",
                advice="The first warning of `rounddiag.capture` says why.",
            )
        return is_due

    def file_name(self, step: int) -> str:
        """Return the name of a step's file."""
        rank = "" if self.rank is None else f"_rank_{self.rank}"
        return f"step_{step}{rank}.parquet"

    def path(self, step: int) -> str:
        """Return the path or URL of a step's file."""
        name = self.file_name(step)
        return (
            f"{self.folder}/{name}"
            if is_url(self.folder)
            else str(Path(self.folder) / name)
        )


def absolute_folder(folder: str | os.PathLike[str]) -> str:
    """Return the absolute path of a folder, or a URL unchanged."""
    name = os.fsdecode(folder)
    if not is_url(name):
        return str(Path(name).absolute())
    if find_spec("fsspec") is None:
        raise BatchError.build(
            key="folder",
            expected="a folder, or the package fsspec for a URL",
            found=f"{name!r} without fsspec",
            advice="Install fsspec and the backend of your storage: `pip install"
            " fsspec s3fs` for S3, gcsfs for Google Cloud, adlfs for Azure.",
        )
    return name


def make_capture_folder(folder: str) -> None:
    """Make a folder, and those above it, where the system allows it.

    Later only the folder itself is made again: of a disk that is away, its files would
    end up in another place.
    """
    if not is_url(folder):
        with suppress(OSError):
            Path(folder).mkdir(parents=True, exist_ok=True)


def remove_stale_files(folder: str) -> None:
    """Remove files that a killed training left behind over an hour ago.

    Partial files in its folder, and copies that were to be judged. Object storage is
    left alone.
    """
    places = [(tempfile.gettempdir(), f"{COPY}*.parquet")]
    if not is_url(folder):
        places.append((folder, ".step_*.parquet.*.partial"))
        remove_partial_files(Path(folder))
    for place, pattern in places:
        for file in Path(place).glob(pattern):
            with suppress(OSError):
                if file.stat().st_mtime < time.time() - _STALE_AFTER:
                    file.unlink()


def checked_tokenizer(tokenizer: Any) -> str | None:  # noqa: ANN401 transformers need not be installed
    """Return the path or name of a tokenizer.

    Examples
    --------
    >>> checked_tokenizer("Qwen/Qwen2.5-VL-7B-Instruct")
    'Qwen/Qwen2.5-VL-7B-Instruct'
    """
    if tokenizer is None:
        return None
    is_path = isinstance(tokenizer, str | os.PathLike)
    name = os.fspath(tokenizer) if is_path else getattr(tokenizer, "name_or_path", "")
    if not isinstance(name, str) or not name:
        raise BatchError.build(
            key="tokenizer",
            expected="a path, a model name, or a tokenizer with `name_or_path`",
            found=f"a {type(tokenizer).__name__} without a name",
            advice="Pass the path or the name.",
        )
    if Path(name).exists():
        return str(Path(name).absolute())
    if isinstance(tokenizer, os.PathLike) or Path(name).is_absolute():
        raise BatchError.build(
            key="tokenizer",
            expected="a path that exists, or the name of a model",
            found=repr(name),
            advice="Correct the path.",
        )
    return name


def _checked_callback(value: object) -> object:
    if value is not None and not callable(value):
        raise BatchError.build(
            key="on_verdict",
            expected="a function of a Diagnosis and the path of its file",
            found=f"a {type(value).__name__}",
            advice="Pass a function, or leave it out.",
        )
    return value


def _checked_number(name: str, minimum: int, value: Any) -> int | None:  # noqa: ANN401 as given
    if value is None and name == "max_samples":
        return None
    with suppress(TypeError):
        if index(value) >= minimum:
            return index(value)
    raise BatchError.build(
        key=name,
        expected=f"an integer of at least {minimum}",
        found=f"{value!r:.80}",
        advice="Pass another number to `Recorder`.",
    )


_CHECKS: dict[str, Callable[[Any], object]] = {
    "folder": absolute_folder,
    "facts": plain_facts,
    "tokenizer": checked_tokenizer,
    "on_verdict": _checked_callback,
    **{
        name: partial(_checked_number, name, minimum)
        for name, minimum in _MINIMUM.items()
    },
}

"""Files that are written: whole or not at all, and never over what is of another kind.

`check_target` decides for all commands and functions that write.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO

from rounddiag.errors import LoadError, OutputError

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class FileKind:
    """A kind of file that is written.

    Attributes
    ----------
    name: Of such a file, in messages.
    has: Whether a file, open for reading, is of this kind.
    """

    name: str
    has: Callable[[IO[bytes]], bool]


def check_target(file: Path, kind: FileKind, reads: Iterable[Path] = ()) -> None:
    """Raise an OutputError unless a file can be written without loss.

    What is there already must be of the same kind, or empty, and none of the files that
    are read, under any of their names. A folder that is missing is made when the file
    is written, and none above it: a path that is mistyped, or on a disk that is not
    mounted, is not made elsewhere.
    """
    with output_errors(file):
        try:
            status = file.stat()
        except FileNotFoundError:  # also of a link to nothing
            _require_parent(file.parent)
            return
        content = ""
        if S_ISDIR(status.st_mode):
            content = "a folder"
        elif not S_ISREG(status.st_mode):
            content = "no regular file"
        elif any(_is_same(file, other) for other in reads):
            content = "the file that is read"
        elif status.st_size:
            with file.open("rb") as stream:
                content = "" if kind.has(stream) else "another file"
    if content:
        raise refusal(file, kind, content)


def refusal(file: object, kind: FileKind, content: str) -> OutputError:
    """Return the error for a target that would be lost."""
    return OutputError.build(
        file=file,
        expected=f"a new name, or that of {kind.name}",
        found=content,
        advice="Pass another name: nothing else is overwritten.",
    )


def _is_same(file: Path, other: Path) -> bool:
    with suppress(OSError, ValueError):  # not there, or no name of a file
        return file.samefile(other)
    return False


@contextmanager
def output_errors(file: Path) -> Iterator[None]:
    """Turn an OSError into an OutputError that names the file, and the free space."""
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        advice = "Correct the path, or what may be written there."
        if error.errno in _NO_SPACE:
            with suppress(OSError):
                free = shutil.disk_usage(file.parent).free
                reason += f", with {free / 1e6:,.1f} MB free on this disk"
            advice = "Free some space, or pass a path on another disk."
        raise OutputError.build(
            file=file,
            expected="a file that can be written",
            found=reason,
            advice=advice,
        ) from error


def make_folder(folder: Path) -> None:
    """Make a folder that is missing, and none above it."""
    with output_errors(folder):
        _require_parent(folder)
        folder.mkdir(exist_ok=True)


def _require_parent(folder: Path) -> None:
    """Raise a LoadError unless a folder is there, or can be made in one that is."""
    if not folder.parent.exists():
        raise LoadError.build(
            file=folder,
            expected="a folder in one that exists",
            found=f"no folder {folder.parent}",
            advice="Correct the path, or make that folder first.",
        )


@contextmanager
def write_atomically(
    file: Path, kind: FileKind, reads: Collection[Path] = ()
) -> Iterator[Path]:
    """Yield a temporary path; the file written there replaces `file` at the end.

    As far as `check_target` allows it.
    """
    check_target(file, kind, reads)
    make_folder(file.parent)
    partial = file.with_name(f".{file.name}.{uuid.uuid4().hex}.partial")
    with output_errors(file):
        try:
            yield partial
            with partial.open("rb+") as written:
                os.fsync(written.fileno())
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)

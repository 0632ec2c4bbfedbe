"""The temporary folder that parent and child share, and its files.

What lies in it counts as written by a stranger: only plain files are opened, up to a
size, and links are not followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO


_PREFIX = "rounddiag-untrusted-"
_LOCK = "lock"
_ABANDONED = 3600  # seconds after which a folder without a living parent goes


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Create a folder, and remove it at the end with all that is in it.

    Folders older than an hour that a process left when it was killed are removed.
    """
    import fcntl  # not on Windows

    _remove_abandoned(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with (folder / _LOCK).open("wb") as lock:  # held for as long as we live
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(place: Path) -> None:
    before = time.time() - _ABANDONED
    for folder in place.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
            if is_ours and status.st_mtime < before and not _is_locked(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_locked(folder: Path) -> bool:
    """Return whether the process that made a folder is alive."""
    import fcntl

    if not (folder / _LOCK).exists():
        return False
    with open_plain(folder / _LOCK) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def open_plain(file: Path) -> BinaryIO:
    """Open a plain file without waiting."""
    descriptor = os.open(
        file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    )
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        msg = f"{file.name} is no plain file"
        raise OSError(msg)
    return os.fdopen(descriptor, "rb")


def read_start(file: Path, num_bytes: int) -> bytes:
    """Return the first bytes of a file; none if it is missing or no plain file."""
    with contextlib.suppress(OSError), open_plain(file) as stream:
        return stream.read(num_bytes)
    return b""


def read_end(file: Path, num_bytes: int) -> bytes:
    """Return the last bytes of a file; none if it is missing or no plain file."""
    with contextlib.suppress(OSError), open_plain(file) as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(size - num_bytes, 0))
        return stream.read(num_bytes)
    return b""

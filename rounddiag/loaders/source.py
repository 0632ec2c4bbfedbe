"""Files, and parts of them: located while loading, read on request.

Also short lists of names, for messages.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING

from rounddiag.errors import LoadError

if TYPE_CHECKING:
    from typing_extensions import Buffer


MAX_LINE = 1 << 16  # bytes of a text opcode of old pickles: a name or a number
BUFFER = 1 << 16  # bytes read ahead


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file as it was when it was opened, or bytes decoded from a file.

    The file is not kept open or memory-mapped between reads: a process that maps a file
    crashes if it is overwritten in place. Each read checks that the file is unchanged.
    """

    path: Path
    size: int
    mtime_ns: int = 0
    data: bytes | None = field(default=None, repr=False)

    @classmethod
    def of_file(cls, path: Path) -> Source:
        """Record a file with its size and modification time."""
        stat = path.stat()
        return cls(path=path, size=stat.st_size, mtime_ns=stat.st_mtime_ns)

    def of_bytes(self, data: bytes) -> Source:
        """Return bytes that were decoded from this file, as a source."""
        return Source(path=self.path, size=len(data), data=data)

    def whole(self) -> Span:
        """Return the span of the whole file."""
        return Span(self, 0, self.size)

    def open(self) -> io.RawIOBase | io.BytesIO:
        """Open it for reading; a LoadError if the file has changed."""
        if self.data is not None:
            return io.BytesIO(self.data)
        try:
            stream = self.path.open("rb", buffering=0)
        except OSError as error:
            raise self._change_error(found=error.strerror or "no such file") from error
        stat = os.fstat(stream.fileno())
        if (stat.st_size, stat.st_mtime_ns) != (self.size, self.mtime_ns):
            stream.close()
            raise self._change_error(found="another size or time")
        return stream

    def _change_error(self, *, found: str) -> LoadError:
        return self.error(
            expected="the file as it was when it was loaded",
            found=found,
            advice="Load it again. Copy a file first if a trainer overwrites it.",
        )

    def error(
        self,
        *,
        expected: str,
        found: str,
        advice: str,
        key: str | None = None,
        code: Iterable[str] = (),
    ) -> LoadError:
        """Build a LoadError that names this file."""
        return LoadError.build(
            file=self.path,
            key=key,
            expected=expected,
            found=found,
            advice=advice,
            code=code,
        )


class DamageError(LoadError):
    """What a file holds violates its own format; `load_errors` names the file."""


def damage_error(*, found: str, file: Path | None = None) -> LoadError:
    """Build the error of a file that violates its own format.

    Without `file`, `load_errors` names the one that is read.
    """
    kind = DamageError if file is None else LoadError
    return kind.build(
        file=file,
        expected="a whole file of its kind",
        found=found,
        advice="It is cut off, damaged or forged: copy or save it again.",
    )


# Errors that no check anticipates become a LoadError, with the original as its cause.
_UNEXPECTED = (
    *(ArithmeticError, AttributeError, LookupError, OSError),
    *(RuntimeError, TypeError, ValueError),
)


@contextmanager
def load_errors(source: Source) -> Iterator[None]:
    """Turn every failure to read a file into a LoadError."""
    try:
        yield
    except DamageError as error:
        raise LoadError(f"{source.path}: {error}") from error.__cause__
    except LoadError:
        raise
    except MemoryError as error:
        raise source.error(
            expected="a file that fits into memory",
            found="one that does not",
            advice="Close what you do not need, or open a smaller file.",
        ) from error
    except _UNEXPECTED as error:
        kind = type(error).__name__
        reason = f"an unexpected error while reading it: {kind}: {error!s:.80}"
        raise damage_error(found=reason, file=source.path) from error


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes of a source from `start` to `stop`."""

    source: Source
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def part(self, start: int, size: int) -> Span:
        """Return the span of `size` bytes that begins `start` bytes into this one."""
        if start < 0 or size < 0 or start + size > len(self):
            fault = f"bytes {start} to {start + size} of a part of {len(self)} bytes"
            raise damage_error(found=fault)
        return Span(self.source, self.start + start, self.start + start + size)

    def open(self) -> SpanReader:
        """Open it as a file that ends where the span ends."""
        return SpanReader(_Window(self), BUFFER)

    def read(self) -> bytes:
        """Read all of it."""
        with self.open() as stream:
            return stream.read(len(self))

    def read_into(self, buffer: memoryview) -> None:
        """Fill a buffer of the span's size without an intermediate copy."""
        with self.open() as stream:
            if stream.readinto(buffer) != len(self):
                raise damage_error(found="an end in the middle of a tensor")


class SpanReader(io.BufferedReader):
    """A buffered reader of a span that limits the length of a line."""

    def readline(self, size: int | None = -1) -> bytes:  # noqa: ARG002 the limit is ours
        """Read one line, or its first `MAX_LINE` bytes."""
        return super().readline(MAX_LINE)


class _Window(io.RawIOBase):
    def __init__(self, span: Span) -> None:
        self._span, self._stream, self._at = span, span.source.open(), 0
        self._stream.seek(span.start)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._at, len(self._span))[whence]
        self._at = max(0, base + offset)
        self._stream.seek(self._span.start + self._at)
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        room = memoryview(buffer)[: max(0, len(self._span) - self._at)]
        count = self._stream.readinto(room) or 0
        self._at += count
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


def inside(
    folder: Path, name: str | os.PathLike[str], *, most_bytes: int | None = None
) -> Path:
    """Return the path of a file in a folder that others may have written.

    Links are followed, and must end in the folder; those of a snapshot in the cache of
    Hugging Face may also end in the `blobs` of its repository.

    Parameters
    ----------
    folder : Path
    name : path-like or str
        Of the file, relative to the folder, as a file of others may name it.
    most_bytes : int, optional
        The largest file.

    Examples
    --------
    >>> from pathlib import Path
    >>> inside(Path("sample_data"), "healthy.parquet").name
    'healthy.parquet'
    >>> inside(Path("sample_data"), "../pyproject.toml")
    Traceback (most recent call last):
    ...
    rounddiag.errors.LoadError: sample_data: expected the name of a file in this folder; found '../pyproject.toml', which is outside. Copy the file into the folder.
    """  # noqa: E501 a message
    expected, fault = "the name of a file in this folder", f"{os.fspath(name)!r:.80}"
    advice = "Copy the file into the folder."
    try:
        file, home = (folder / name).resolve(), folder.resolve()
        status = file.lstat()
    except FileNotFoundError:
        fault += ", which does not exist"
    except (OSError, ValueError, RuntimeError) as error:  # a NUL, a circle of links
        fault += f", which cannot be opened ({error!s:.80})"
    else:
        homes = [home]
        if home.parent.name == "snapshots":
            homes.append(home.parent.parent / "blobs")
        if not any(map(file.is_relative_to, homes)):
            fault += ", which is outside"
        elif not S_ISREG(status.st_mode):
            fault += ", which is no regular file"
        elif most_bytes is not None and status.st_size > most_bytes:
            fault += f" of {status.st_size:,} bytes"
            expected = f"a file of at most {most_bytes:,} bytes in this folder"
            advice = "It is damaged, or not what its name says."
        else:
            return file
    raise LoadError.build(file=folder, expected=expected, found=fault, advice=advice)

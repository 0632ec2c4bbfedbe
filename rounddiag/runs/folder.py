"""The files of a run, and the step of each."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from glob import has_magic
from pathlib import Path, PurePosixPath
from stat import S_ISREG
from typing import Any
from weakref import finalize

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.loaders.parquet.metadata import Footer
from rounddiag.loaders.paths import is_like, is_url, name_patterns
from rounddiag.loaders.source import inside
from rounddiag.wording import by_numbers, join_names

_STEP = re.compile(r"step[_-]?(\d+)", re.IGNORECASE)
_RANK = re.compile(r"rank[_-]?\d+", re.IGNORECASE)
_MAX_STEP = (1 << 63) - 1
_NUMBER = re.compile(r"\d+")
_HIDDEN = ("/.", "/_")
UNKNOWN = "?"  # the end of `StepFiles.content` where files have no identity
# What storages call the version of a file, or the time when it was written.
_REMOTE_IDENTITY = (
    *("ETag", "etag", "md5Hash", "generation", "content_md5"),
    *("LastModified", "last_modified", "updated", "mtime", "created"),
)


@dataclass(frozen=True, kw_only=True)
class RunFile:
    """A file of a run.

    Attributes
    ----------
    path: In its filesystem.
    size: In bytes.
    time_ns: When it was last written; 0 where the storage does not say.
    identity: What changes with any write, though size and time are kept: the inode and
        the time of its last change, or what the storage has; "" where it has nothing.
    is_plain: Whether it is a file itself, not a link or a pipe.
    """

    path: str
    size: int
    time_ns: int
    identity: str
    is_plain: bool = True

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class StepFiles:
    """The files of one step: one, or one per rank.

    Attributes
    ----------
    files: In the order of the numbers in their names.
    """

    step: int
    files: tuple[RunFile, ...]

    @property
    def stamp(self) -> str:
        """Name, size and time of the files, which change when one is written."""
        return "|".join(f"{f.name}:{f.size}:{f.time_ns}" for f in self.files)

    @property
    def content(self) -> str:
        """The stamp, and the identity of the files; `UNKNOWN` where one has none."""
        identities = [file.identity for file in self.files]
        return "|".join([self.stamp, *(identities if all(identities) else [UNKNOWN])])

    @property
    def num_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size for file in self.files)


class RunFolder:
    """A folder, a glob or a URL, and the files of steps in it.

    Parameters
    ----------
    address : path-like or str
        A folder, a file, a glob, or a URL that fsspec knows, such as `s3://bucket/run`.
    sample_by : sequence of str
        As in `rounddiag.load`: the columns by which rows of its files are joined.
    order_by : str, optional
        As in `rounddiag.load`.

    Attributes
    ----------
    root: The folder in its filesystem.
    joining: `sample_by` and `order_by` as options of `load`; empty where no rows are
        joined.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        sample_by: Sequence[str] = (),
        order_by: str | None = None,
    ) -> None:
        self.address = str(address)
        self._order = (tuple(sample_by), order_by)
        self.joining: dict[str, Any] = (
            {"sample_by": self._order[0], "order_by": order_by} if sample_by else {}
        )
        self.is_local = not is_url(self.address)
        self.files, path = _filesystem(self.address, is_local=self.is_local)
        magic = [has_magic(part) for part in PurePosixPath(path).parts]
        parts = PurePosixPath(path).parts
        # The name of a folder that exists may have the signs of a glob.
        is_glob = True in magic and not (self.is_local and Path(path).exists())
        first = magic.index(True) if is_glob else len(parts)
        self.root = str(PurePosixPath(*parts[:first]))
        self._pattern = "/".join(parts[first:])

    @property
    def identity(self) -> str:
        """Which folder this is, however it was named: its path, and the pattern.

        With how its rows are joined, because tables of joined rows are others.
        """
        root = str(Path(self.root).resolve()) if self.is_local else self.address
        joining = f"\n{self._order}" if self.joining else ""
        return f"{root}\n{self._pattern}{joining}"

    @property
    def is_away(self) -> bool:
        """Whether there is no folder, or no file in it."""
        return not self._inside(recursive=True)

    def steps(self) -> list[StepFiles]:
        """List the steps, in order."""
        files_of: dict[int, list[RunFile]] = {}
        for number, file in enumerate(self._list()):
            files_of.setdefault(self._step_of(file, number), []).append(file)
        for step, files in files_of.items():
            # What is no file takes the place of none.
            files_of[step] = [file for file in files if file.is_plain] or files[:1]
            self._check_ranks(step, files_of[step])
        return [
            StepFiles(step=step, files=tuple(files))
            for step, files in sorted(files_of.items())
        ]

    @cached_property
    def is_raw(self) -> bool:
        """Whether the files are those of a framework: none can be read as ours."""
        return all(self._own_footer(file) is None for file in self._list())

    @property
    def is_read_whole(self) -> bool:
        """Whether tables need the whole files, of a framework or with rows to join."""
        return bool(self.joining) or self.is_raw

    @contextmanager
    def open_parquet(
        self, file: RunFile
    ) -> Iterator[tuple[pa.NativeFile, pq.FileMetaData]]:
        """Open a Parquet file, and read its footer."""
        with self.files.open_input_file(self._checked(file)) as source:
            _check_size(file, source.size())
            yield source, pq.read_metadata(source)

    def fetch(self, file: RunFile) -> Path:
        """Return the local path of a file; one from a URL is copied first."""
        if self.is_local:
            return Path(self._checked(file))
        copy = self._copies / f"{file.size}_{file.time_ns}_{file.name}"
        if not copy.exists():
            fs.copy_files(file.path, str(copy), source_filesystem=self.files)
            try:
                _check_size(file, copy.stat().st_size)
            except LoadError:
                copy.unlink()
                raise
        return copy

    def _checked(self, file: RunFile) -> str:
        """Return the path of a file; a LoadError for a pipe, or a link out of here."""
        if self.is_local and file.path != self.root:
            with suppress(FileNotFoundError):
                if not S_ISREG(os.lstat(file.path).st_mode):
                    inside(Path(self.root), file.path.removeprefix(f"{self.root}/"))
        return file.path

    def check(self, steps: Iterable[StepFiles]) -> None:
        """Raise a LoadError if a local file was replaced since it was listed.

        Also for a step whose number no table holds.

        Of files from a URL, the size is checked when they are read: few storages say
        when a file was written, and each look takes as long as a small read.
        """
        steps = [*steps]
        for step in steps:
            if step.step > _MAX_STEP:
                raise LoadError.build(
                    file=step.files[0].path,
                    expected=f"a step of at most {_MAX_STEP}",
                    found=f"{step.step}",
                    advice="Give the file another name.",
                )
        for file in (file for step in steps for file in step.files if self.is_local):
            try:
                now = _local_file(file.path)
            except OSError:
                raise _replacement_error(file, "none") from None
            _check_size(file, now.size)
            if now.time_ns != file.time_ns:
                change = "one that was written at another time"
                raise _replacement_error(file, change)

    def forget(self, file: RunFile) -> None:
        """Delete the copy of a file from a URL."""
        if not self.is_local:
            self.fetch(file).unlink()

    @cached_property
    def _copies(self) -> Path:
        folder = tempfile.mkdtemp(prefix="rounddiag_")
        finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def __reduce__(
        self,
    ) -> tuple[type[RunFolder], tuple[str, Sequence[str], str | None]]:
        # A worker may have another working directory.
        path = str(PurePosixPath(self.root, self._pattern))
        return RunFolder, (path if self.is_local else self.address, *self._order)

    def _list(self) -> Sequence[RunFile]:
        if self._pattern:
            matching = [f for f in self._inside(recursive=True) if self._matches(f)]
            if matching:
                return matching
        else:
            for recursive in (False, True):
                matching = self._inside(recursive=recursive)
                for pattern, _ in name_patterns():
                    files = [file for file in matching if is_like(file.path, pattern)]
                    if files:
                        return files
        names = [file.name for file in matching]
        raise LoadError.build(
            file=self.address,
            expected="a folder of step files, of a `Recorder` or of a framework",
            found=join_names(names) or "no file",
            advice="`rounddiag.formats()` lists the files that count; pass the folder"
            " that holds them.",
        )

    def _inside(self, *, recursive: bool) -> list[RunFile]:
        find = self._find_local if self.is_local else self._find_remote
        files = [
            file for file in find(recursive=recursive) if not self._is_hidden(file)
        ]
        return sorted(files, key=lambda file: by_numbers(file.path))

    def _find_local(self, *, recursive: bool) -> Iterator[RunFile]:
        """Yield the files, not those of linked folders; reading refuses bad links."""
        if not Path(self.root).is_dir():
            with suppress(OSError):
                yield _local_file(self.root)
        for folder, folders, names in os.walk(self.root):
            if not recursive:
                folders.clear()
            for name in names:
                with suppress(OSError):  # removed meanwhile
                    yield _local_file(f"{folder}/{name}")

    def _find_remote(self, *, recursive: bool) -> Iterator[RunFile]:
        files = self.files.handler.fs
        infos = files.find(self.root, maxdepth=None if recursive else 1, detail=True)
        for path, info in infos.items():
            known = [f"{info[name]}" for name in _REMOTE_IDENTITY if info.get(name)]
            yield RunFile(
                path=path,
                size=info.get("size") or 0,
                time_ns=int((info.get("mtime") or 0) * 1e9),
                identity=" ".join(known),
            )

    def _is_hidden(self, file: RunFile) -> bool:
        inner = file.path.removeprefix(self.root.rstrip("/"))
        return any(mark in inner for mark in _HIDDEN)

    def _matches(self, file: RunFile) -> bool:
        inner = PurePosixPath(file.path).relative_to(self.root)
        return inner.match(self._pattern)

    def _step_of(self, file: RunFile, number: int) -> int:
        """Return the step by the name, else by our footer, else by the order."""
        inner = file.path.removeprefix(self.root)
        if named := _STEP.findall(inner):
            return int(named[-1])
        footer = self._own_footer(file)
        if footer is not None and footer.step is not None:
            return footer.step
        numbers = _NUMBER.findall(_RANK.sub("", PurePosixPath(file.path).stem))
        return int(numbers[-1]) if numbers else number

    def _own_footer(self, file: RunFile) -> Footer | None:
        if not file.name.endswith(".parquet"):
            return None
        with suppress(*BROKEN), self.open_parquet(file) as (_, footer):
            return Footer.from_metadata(footer.metadata)
        return None

    def _check_ranks(self, step: int, files: Sequence[RunFile]) -> None:
        """Refuse several files of one step, unless each is of a rank of its own."""
        known = (_RANK.findall(file.name) for file in files)
        ranks = {names[-1] for names in known if names}
        if len(files) > 1 and len(ranks) < len(files):
            names = [file.path.removeprefix(f"{self.root}/") for file in files]
            raise LoadError.build(
                file=self.address,
                expected="one file per step, or one per step and rank",
                found=f"step {step} in {join_names(names)}",
                advice="Pass the folder of one run.",
            )


def _local_file(path: str) -> RunFile:
    """Return what the system says of a file; of a link, what it says of its end."""
    info = os.lstat(path)
    is_plain = S_ISREG(info.st_mode)
    if not is_plain:
        with suppress(OSError):  # a link to nothing, or to itself
            info = os.stat(path)  # noqa: PTH116 as above, thousands of files
    return RunFile(
        is_plain=is_plain,
        path=path,
        size=info.st_size,
        time_ns=info.st_mtime_ns,
        identity=f"{info.st_ino} {info.st_ctime_ns}",
    )


def _check_size(file: RunFile, size: int | None) -> None:
    if size is None:
        raise _replacement_error(file, "none")
    if size != file.size:
        raise _replacement_error(
            file, f"one of {size:,} bytes instead of {file.size:,}"
        )


def _replacement_error(file: RunFile, content: str) -> LoadError:
    return LoadError.build(
        file=file.path,
        expected="the file as it was when the run looked for it",
        found=content,
        advice="`run.refresh()` looks for the files again.",
    )


def _filesystem(address: str, *, is_local: bool) -> tuple[fs.FileSystem, str]:
    if is_local:
        return fs.LocalFileSystem(), Path(address).expanduser().absolute().as_posix()
    try:
        from fsspec.core import url_to_fs  # type: ignore[import-untyped]
    except ImportError as error:
        raise LoadError.build(
            file=address,
            expected="the package fsspec, to read a URL",
            found="none",
            advice="Run `pip install 'rounddiag[remote]'`, and install the backend of"
            " your storage: s3fs for S3, gcsfs for Google Cloud, adlfs for Azure.",
        ) from error
    try:
        files, path = url_to_fs(address)
    except ImportError as error:
        raise LoadError.build(
            file=address,
            expected="the package of its storage, to read a URL",
            found=f"{error!s:.120}",
            advice="Install it: s3fs for S3, gcsfs for Google Cloud, adlfs for Azure,"
            " aiohttp for HTTP.",
        ) from error
    except ValueError as error:
        raise LoadError.build(
            file=address,
            expected="a URL that fsspec knows, such as s3://bucket/run",
            found=str(error),
            advice="Check the first part of the URL.",
        ) from error
    return fs.PyFileSystem(fs.FSSpecHandler(files)), path

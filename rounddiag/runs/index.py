"""The index of a run: tables derived from its step files, in the user's cache folder.

Each table is a file of its own. It holds rows of steps, and what identifies the files
that they were computed from: a path, and of each file its name, size, times and inode.
Rows of other files, or by another version of this code, are computed again. Nothing
beside the step files is read or written: others may have written them. The folder can
be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from threading import get_ident
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rounddiag._typing import Array
from rounddiag._version import __version__
from rounddiag.errors import LoadError
from rounddiag.runs.engines import RunEngine, map_items
from rounddiag.runs.folder import UNKNOWN, RunFolder, StepFiles
from rounddiag.wording import pluralize, printable

# Rows of a step: a frame, or plain columns, of which a run can have thousands.
Rows: TypeAlias = pd.DataFrame | Mapping[str, Array]
Computed: TypeAlias = Mapping[str, Rows] | Exception
_Table = tuple[dict[int, str], pd.DataFrame]  # what rows are of, by step; the rows


_CONTENTS = b"rounddiag.contents"
_SIZE_OF_DIGEST = hashlib.sha256().digest_size
_SAVE_EVERY = 20.0  # seconds between two savings of a table that is being filled
_STALE_AFTER = 3600.0  # seconds; another process may still write a younger file
# Packages that rows do not depend on.
_SHOWN = ("cli", "export", "figures", "widgets", "proof")


class Index:
    """The derived tables of a run.

    Parameters
    ----------
    folder : RunFolder
    engine : {"local", "ray"}
        Where rows are computed.

    """

    def __init__(self, folder: RunFolder, engine: RunEngine) -> None:
        self._folder, self._engine = folder, engine
        self._failed: dict[str, dict[int, str]] = {}  # by what was computed
        self._warned: set[str] = set()  # of which files, by their stamps
        name = hashlib.sha256(folder.identity.encode()).hexdigest()[:32]
        self.path = _cache_folders()[-1] / name
        self._tables: dict[str, _Table] = {}

    @property
    def failed(self) -> dict[int, str]:
        """Steps whose rows could not be computed, with the errors."""
        found: dict[int, str] = {}
        for errors in reversed([*self._failed.values()]):  # those of summaries last
            found |= errors
        return dict(sorted(found.items()))

    def fill(
        self,
        names: Mapping[str, str],
        steps: Sequence[StepFiles],
        compute: Callable[[StepFiles], Mapping[str, Rows]],
        *,
        label: str,
        num_threads: int = 1,
    ) -> dict[int, str]:
        """Compute the rows that tables lack, or have of other files.

        Returns the steps whose rows cannot be computed, of which there is a warning.
        """
        lacking = chain.from_iterable(self._find_lacking(name, steps) for name in names)
        failed: dict[int, str] = {}
        rows: dict[str, dict[StepFiles, Rows]] = {name: {} for name in names}
        saved = time.monotonic()
        try:
            for one, computed in map_items(
                compute,
                [*dict.fromkeys(lacking)],
                engine=self._engine,
                num_bytes=lambda files: files.num_bytes,
                label=label,
                num_threads=num_threads,
            ):
                result = self._unless_replaced(one, computed)
                if isinstance(result, Exception):
                    failed[one.step] = str(result)
                    continue
                for name, key in names.items():
                    rows[name][one] = result[key]
                if time.monotonic() - saved > _SAVE_EVERY:
                    self._add(rows)
                    rows = {name: {} for name in names}
                    saved = time.monotonic()
        finally:
            self._add(rows)
        known = self._failed.setdefault(label, {})
        for one in steps:
            known.pop(one.step, None)
        known.update(failed)
        self._warn(failed, steps)
        return known

    def rows(self, name: str, steps: Iterable[StepFiles]) -> pd.DataFrame:
        """Return the rows of these steps, as far as their files are unchanged."""
        contents, frame = self._table(name)
        kept = [one.step for one in steps if contents.get(one.step) == one.content]
        if len(frame) == 0:
            return frame
        chosen = frame[frame["step"].isin(kept)]
        return chosen.sort_values("step", kind="stable", ignore_index=True)

    def _find_lacking(self, name: str, steps: Iterable[StepFiles]) -> list[StepFiles]:
        """Return the steps that a table lacks, or has of other files."""
        contents = self._table(name)[0]
        return [one for one in steps if contents.get(one.step) != one.content]

    def _unless_replaced(self, one: StepFiles, computed: Computed) -> Computed:
        """Return what was computed, or the error that a file was replaced meanwhile."""
        try:
            self._folder.check([one])
        except LoadError as error:
            return error
        return computed

    def _warn(self, failed: dict[int, str], steps: Sequence[StepFiles]) -> None:
        known = {one.stamp for one in steps if one.step in failed}
        if not known <= self._warned:
            self._warned |= known
            step, error = next(iter(failed.items()))
            warnings.warn(
                f"{pluralize(len(failed), 'step')} left out, `run.failed` lists them;"
                f" step {step}: {error}",
                stacklevel=4,
            )

    def _add(self, rows: Mapping[str, Mapping[StepFiles, Rows]]) -> None:
        """Put the rows of some steps in the place of their old ones, and save them."""
        for name, computed in rows.items():
            if computed:
                new = {one.step: one.content for one in computed}
                self._tables[name] = _join(
                    self._table(name), (new, _frame(computed.values()))
                )
                self._save(name)

    def _table(self, name: str) -> _Table:
        if name not in self._tables:
            self._tables[name] = self._read(name)
        return self._tables[name]

    def _file(self, name: str) -> Path:
        return self.path / hashlib.sha256(name.encode()).hexdigest()[:32]

    def _read(self, name: str) -> _Table:
        """Read a table; one that is missing, or not as it was written, is empty."""
        with suppress(OSError):
            self._check_folder()
            data = _read_file(self._file(name))
            digest, body = data[:_SIZE_OF_DIGEST], data[_SIZE_OF_DIGEST:]
            if digest == _digest(name, body):
                table = pq.read_table(pa.BufferReader(body), use_threads=False)
                contents = json.loads(table.schema.metadata[_CONTENTS])
                return {int(k): text for k, text in contents.items()}, table.to_pandas()
        return {}, pd.DataFrame()

    def _save(self, name: str) -> None:
        """Write a table, with the rows that another process has added; warn once."""
        contents, frame = _join(self._read(name), self._tables[name])
        # Files of which the storage says too little can change without a trace.
        contents = {k: v for k, v in contents.items() if not v.endswith(UNKNOWN)}
        if len(frame):
            frame = frame[frame["step"].isin([*contents])]
        try:
            self._write(name, contents, frame)
        except OSError as error:
            if "index" not in self._warned:
                self._warned.add("index")
                warnings.warn(
                    printable(
                        f"{self.path}: the index cannot be written ({error!s:.80}); the"
                        " next session computes the summaries again. Set"
                        " ROUNDDIAG_CACHE to a folder that can be written."
                    ),
                    stacklevel=2,
                )

    def _write(self, name: str, contents: dict[int, str], frame: pd.DataFrame) -> None:
        """Write a table; it gets its name once it is complete."""
        table = pa.Table.from_pandas(frame, preserve_index=False)
        text = json.dumps(contents)
        table = table.replace_schema_metadata(
            {**(table.schema.metadata or {}), _CONTENTS: text.encode()}
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        body = sink.getvalue().to_pybytes()
        for folder in (*_cache_folders(), self.path):
            folder.mkdir(mode=0o700, exist_ok=True)
        self._check_folder()
        target = self._file(name)
        for old in self.path.glob(".*"):  # of killed processes
            if old.lstat().st_mtime < time.time() - _STALE_AFTER:
                old.unlink()
        partial = target.with_name(f".{target.name}.{os.getpid()}.{get_ident()}")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            with open(os.open(partial, flags, 0o600), "wb") as file:  # noqa: PTH123
                file.write(_digest(name, body) + body)
            partial.replace(target)
        finally:
            with suppress(OSError):
                partial.unlink()

    def _check_folder(self) -> None:
        """Raise an OSError unless it is a folder of this user, and not a link."""
        found = self.path.lstat()
        if not S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            msg = "it is a link, or of another user"
            raise OSError(msg)


def _frame(rows: Collection[Rows]) -> pd.DataFrame:
    """Return the rows of steps as one frame; plain columns are the same of each."""
    frames = [one for one in rows if isinstance(one, pd.DataFrame)]
    plain = [one for one in rows if not isinstance(one, pd.DataFrame)]
    names = plain[0] if plain else ()
    joined = {name: np.concatenate([one[name] for one in plain]) for name in names}
    return pd.concat([pd.DataFrame(joined), *frames], ignore_index=True)


def _join(old: _Table, new: _Table) -> _Table:
    """Return the rows of both tables; of a step that both have, the new ones."""
    contents, frame = old
    rest = frame[~frame["step"].isin([*new[0]])] if len(frame) else frame
    parts = [part for part in (rest, new[1]) if len(part)]
    joined = pd.concat(parts, ignore_index=True) if parts else rest
    return {**contents, **new[0]}, joined


def _read_file(path: Path) -> bytes:
    """Return the bytes of a file; an OSError for a link or a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            msg = "it is no regular file"
            raise OSError(msg)
        return file.read()


def _digest(name: str, body: bytes) -> bytes:
    """Return what a table's file begins with: of its content, name, and our code."""
    return hashlib.sha256(_code_digest() + name.encode() + b"\0" + body).digest()


@lru_cache(maxsize=1)
def _code_digest() -> bytes:
    """Return a digest of the code that computes rows: all layers below the figures."""
    package = Path(__file__).parents[1]
    found = hashlib.sha256(__version__.encode())
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).parts[0] not in _SHOWN:
            found.update(file.read_bytes())
    return found.digest()


def _cache_folders() -> list[Path]:
    """Return the folder of all indexes, last, and the one above if it may be made.

    `ROUNDDIAG_CACHE`, or as the XDG base directory specification says.
    """
    if own := os.environ.get("ROUNDDIAG_CACHE"):
        return [Path(own).expanduser().absolute()]
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = cache if cache.is_absolute() else Path("~/.cache").expanduser()
    return [home, home / "rounddiag"]

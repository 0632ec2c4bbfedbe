"""The index of a run: tables derived from its step files, one file in the user's cache.

Each table has rows of steps, and what identifies the files that they were computed
from: a path, and of each file its name, size, times and inode. Rows of other files are
computed again; so are all rows if the index is not as this version of the code wrote
it. Of two processes that write it, the later one wins: what the other one added in the
meantime is computed again. Nothing beside the step files is read or written: others may
have written it. The index can be deleted at any time.
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
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rounddiag._typing import Array
from rounddiag._version import __version__
from rounddiag.errors import LoadError
from rounddiag.loaders.output import FileKind, write_atomically
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.runs.engines import RunEngine, map_items
from rounddiag.runs.folder import UNKNOWN, RunFolder, StepFiles
from rounddiag.wording import pluralize, printable

# Rows of a step: a frame, or plain columns, of which a run can have thousands.
Rows: TypeAlias = pd.DataFrame | Mapping[str, Array]
_Table = tuple[dict[int, str], pd.DataFrame]  # what rows are of, by step; the rows

_CONTENTS = b"rounddiag.contents"
_SIZE_OF_DIGEST = hashlib.sha256().digest_size
_SAVE_EVERY = 20.0  # seconds between two savings of an index that is being filled
_INDEX = FileKind("an index", lambda _: True)  # also a damaged one, in the cache
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
        self.path = _cache_folders()[-1] / f"{name}.index"
        self._tables: dict[str, _Table] = {}

    @property
    def failed(self) -> dict[int, str]:
        """Steps whose rows could not be computed, with the errors."""
        failed: dict[int, str] = {}
        for errors in reversed([*self._failed.values()]):  # those of summaries last
            failed |= errors
        return dict(sorted(failed.items()))

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
        lacking = [
            step
            for name in names
            for step in steps
            if self._table(name)[0].get(step.step) != step.content
        ]
        failed: dict[int, str] = {}
        rows: dict[str, dict[StepFiles, Rows]] = {name: {} for name in names}
        saved = time.monotonic()
        try:
            for step, computed in map_items(
                compute,
                [*dict.fromkeys(lacking)],
                engine=self._engine,
                num_bytes=lambda files: files.num_bytes,
                label=label,
                num_threads=num_threads,
            ):
                error = self._find_error(step, computed)
                if error is not None or isinstance(computed, Exception):
                    failed[step.step] = str(error)
                    continue
                for name, key in names.items():
                    rows[name][step] = computed[key]
                if time.monotonic() - saved > _SAVE_EVERY:
                    self._add(rows)
                    rows = {name: {} for name in names}
                    saved = time.monotonic()
        finally:
            self._add(rows)
        known = self._failed.setdefault(label, {})
        for step in steps:
            known.pop(step.step, None)
        known.update(failed)
        self._warn(failed, steps)
        return known

    def rows(self, name: str, steps: Iterable[StepFiles]) -> pd.DataFrame:
        """Return the rows of these steps, as far as their files are unchanged."""
        contents, frame = self._table(name)
        unchanged = [
            step.step for step in steps if contents.get(step.step) == step.content
        ]
        if len(frame) == 0:
            return frame
        chosen = frame[frame["step"].isin(unchanged)]
        return chosen.sort_values("step", kind="stable", ignore_index=True)

    def _find_error(self, step: StepFiles, computed: object) -> Exception | None:
        """Return why a step has no rows: an error, or a file that was replaced."""
        try:
            self._folder.check([step])
        except LoadError as error:
            return error
        return computed if isinstance(computed, Exception) else None

    def _warn(self, failed: dict[int, str], steps: Sequence[StepFiles]) -> None:
        stamps = {step.stamp for step in steps if step.step in failed}
        if not stamps <= self._warned:
            self._warned |= stamps
            step, error = next(iter(failed.items()))
            warnings.warn(
                f"{pluralize(len(failed), 'step')} left out, `run.failed` lists them;"
                f" step {step}: {error}",
                stacklevel=4,
            )

    def _table(self, name: str) -> _Table:
        if name not in self._tables:
            self._tables[name] = _decode(_read(self.path).get(name))
        return self._tables[name]

    def _add(self, rows: Mapping[str, Mapping[StepFiles, Rows]]) -> None:
        """Put rows in the place of old ones of their steps, and save the index."""
        computed = {name: of_steps for name, of_steps in rows.items() if of_steps}
        if not computed:
            return
        stored = _read(self.path)
        for name, of_steps in computed.items():
            contents = {step.step: step.content for step in of_steps}
            added = contents, _frame(of_steps.values())
            table = self._tables[name] = _join(self._table(name), added)
            # With what another process has added.
            stored[name] = _encode(_join(_decode(stored.get(name)), table))
        try:
            for folder in _cache_folders():
                folder.mkdir(mode=0o700, exist_ok=True)
            _write(self.path, stored)
        except OSError as error:
            cause = error.__cause__ or error
            if "index" not in self._warned:
                self._warned.add("index")
                warnings.warn(
                    printable(
                        f"{self.path}: the index cannot be written ({cause!s:.80}); the"
                        " next session computes the summaries again. Set"
                        " ROUNDDIAG_CACHE to a folder that can be written."
                    ),
                    stacklevel=2,
                )


def _frame(rows: Collection[Rows]) -> pd.DataFrame:
    """Return the rows of steps as one frame; plain columns are the same of each."""
    frames = [of_step for of_step in rows if isinstance(of_step, pd.DataFrame)]
    plain = [of_step for of_step in rows if not isinstance(of_step, pd.DataFrame)]
    names = plain[0] if plain else ()
    joined = {
        name: np.concatenate([columns[name] for columns in plain]) for name in names
    }
    return pd.concat([pd.DataFrame(joined), *frames], ignore_index=True)


def _join(old: _Table, new: _Table) -> _Table:
    """Return the rows of both tables; of a step that both have, the new ones."""
    contents, frame = old
    rest = frame[~frame["step"].isin([*new[0]])] if len(frame) else frame
    parts = [part for part in (rest, new[1]) if len(part)]
    joined = pd.concat(parts, ignore_index=True) if parts else rest
    return {**contents, **new[0]}, joined


def _encode(table: _Table) -> bytes:
    """Return a table as Parquet, without files that can change without a trace."""
    contents, frame = table
    known = {k: text for k, text in contents.items() if not text.endswith(UNKNOWN)}
    if len(frame):
        frame = frame[frame["step"].isin([*known])]
    rows = pa.Table.from_pandas(frame, preserve_index=False)
    marks = {**(rows.schema.metadata or {}), _CONTENTS: json.dumps(known).encode()}
    sink = pa.BufferOutputStream()
    pq.write_table(rows.replace_schema_metadata(marks), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _decode(data: bytes | None) -> _Table:
    """Return a table; an empty one where there is none, or another."""
    if data is None:
        return {}, pd.DataFrame()
    try:
        rows = pq.read_table(pa.BufferReader(data), use_threads=False)
        contents = json.loads(rows.schema.metadata[_CONTENTS])
        return {int(step): text for step, text in contents.items()}, rows.to_pandas()
    except BROKEN:
        return {}, pd.DataFrame()


def _write(path: Path, tables: Mapping[str, bytes]) -> None:
    sizes = {name: len(data) for name, data in tables.items()}
    body = b"".join([json.dumps(sizes).encode(), b"\n", *tables.values()])
    with write_atomically(path, _INDEX) as partial:
        partial.write_bytes(_digest(body) + body)


def _read(path: Path) -> dict[str, bytes]:
    try:
        data = path.read_bytes() if path.is_file() else b""
    except OSError:
        return {}
    digest, body = data[:_SIZE_OF_DIGEST], data[_SIZE_OF_DIGEST:]
    if digest != _digest(body):
        return {}
    head, _, rest = body.partition(b"\n")
    tables, start = {}, 0
    with suppress(*BROKEN):
        for name, size in json.loads(head).items():
            tables[name] = rest[start : start + size]
            start += size
    return tables


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(_code_digest() + body).digest()


@lru_cache(maxsize=1)
def _code_digest() -> bytes:
    """Return a digest of the code that computes rows: all layers below the figures."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256(__version__.encode())
    for file in sorted(package.rglob("*.py")):
        if file.relative_to(package).parts[0] not in _SHOWN:
            digest.update(file.read_bytes())
    return digest.digest()


def _cache_folders() -> list[Path]:
    """Return the folder of all indexes, last, and the one above if it may be made.

    `ROUNDDIAG_CACHE`, or as the XDG base directory specification says.
    """
    if own := os.environ.get("ROUNDDIAG_CACHE"):
        return [Path(own).expanduser().absolute()]
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    home = cache if cache.is_absolute() else Path("~/.cache").expanduser()
    return [home, home / "rounddiag"]

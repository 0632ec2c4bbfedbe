"""The index of a run: tables derived from its step files, kept beside them.

Each table is a Parquet file in the hidden folder `.rounddiag_index`. It holds rows of
steps, and the name, size and time of the files that they were computed from. Rows whose
files have changed are computed again. The folder can be deleted at any time.
"""

from __future__ import annotations

import json
import os
import time
import uuid
import warnings
from itertools import chain
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rounddiag.errors import LoadError
from rounddiag.runs.engines import map_items
from rounddiag.wording import pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from rounddiag.runs.engines import Engine
    from rounddiag.runs.folder import RunFolder, StepFiles

    Computed = dict[str, pd.DataFrame] | Exception


FOLDER = ".rounddiag_index"
_STAMPS = b"rounddiag.stamps"
_VERSION = "2"  # of the rows; tables of another version are computed again
_SAVE_EVERY = 20.0  # seconds between two savings of a table that is being filled


class Index:
    """The derived tables of a run.

    Parameters
    ----------
    folder : RunFolder
    engine : {"local", "ray"}
        Where rows are computed.

    Attributes
    ----------
    failed : dict of int to str
        Steps whose rows could not be computed, with the errors.
    """

    def __init__(self, folder: RunFolder, engine: Engine) -> None:
        self._folder, self._engine = folder, engine
        self.failed: dict[int, str] = {}
        self._warned: set[str] = set()  # of which files, by their stamps
        info = folder.files.get_file_info(folder.root)
        is_file = info.type == fs.FileType.File
        base = folder.root.rpartition("/")[0] if is_file else folder.root
        self.path = f"{base}/{FOLDER}"
        self._tables: dict[str, tuple[dict[int, str], pd.DataFrame]] = {}

    def fill(
        self,
        names: Mapping[str, str],
        steps: Sequence[StepFiles],
        compute: Callable[[StepFiles], dict[str, pd.DataFrame]],
        *,
        label: str,
        num_threads: int = 1,
    ) -> None:
        """Compute the rows that tables lack, or have of other files.

        Steps whose rows cannot be computed are in `failed`, and there is a warning.
        """
        lacking = chain.from_iterable(self._find_lacking(name, steps) for name in names)
        failed: dict[int, str] = {}
        rows: dict[str, dict[StepFiles, pd.DataFrame]] = {name: {} for name in names}
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
        self._report(failed, steps)

    def rows(self, name: str, steps: Iterable[StepFiles]) -> pd.DataFrame:
        """Return the rows of these steps, as far as their files are unchanged."""
        stamps, frame = self._table(name)
        kept = [one.step for one in steps if stamps.get(one.step) == one.stamp]
        if len(frame) == 0:
            return frame
        chosen = frame[frame["step"].isin(kept)]
        return chosen.sort_values("step", kind="stable", ignore_index=True)

    def _find_lacking(self, name: str, steps: Iterable[StepFiles]) -> list[StepFiles]:
        """Return the steps that a table lacks, or has of other files."""
        stamps = self._table(name)[0]
        return [one for one in steps if stamps.get(one.step) != one.stamp]

    def _unless_replaced(self, one: StepFiles, computed: Computed) -> Computed:
        """Return what was computed, or the error that a file was replaced meanwhile."""
        try:
            self._folder.check([one])
        except LoadError as error:
            return error
        return computed

    def _report(self, failed: dict[int, str], steps: Sequence[StepFiles]) -> None:
        for one in steps:
            self.failed.pop(one.step, None)
        self.failed.update(failed)
        known = {one.stamp for one in steps if one.step in failed}
        if not known <= self._warned:
            self._warned |= known
            step, error = next(iter(failed.items()))
            warnings.warn(
                f"{pluralize(len(failed), 'step')} left out, `run.failed` lists them;"
                f" step {step}: {error}",
                stacklevel=4,
            )

    def _add(self, rows: Mapping[str, Mapping[StepFiles, pd.DataFrame]]) -> None:
        """Put the rows of some steps in the place of their old ones, and save them."""
        for name, computed in rows.items():
            if not computed:
                continue
            stamps, frame = self._table(name)
            new = {one.step: one.stamp for one in computed}
            old = frame[~frame["step"].isin([*new])] if len(frame) else frame
            parts = [part for part in (old, *computed.values()) if len(part)]
            frame = pd.concat(parts, ignore_index=True) if parts else old
            self._tables[name] = ({**stamps, **new}, frame)
            self._write(name)

    def _table(self, name: str) -> tuple[dict[int, str], pd.DataFrame]:
        if name not in self._tables:
            self._tables[name] = self._read(name)
        return self._tables[name]

    def _read(self, name: str) -> tuple[dict[int, str], pd.DataFrame]:
        """Read a table; one that is missing, broken or of another version is empty."""
        try:
            with self._folder.files.open_input_file(f"{self.path}/{name}") as file:
                table = pq.read_table(file, use_threads=False)
            facts = json.loads(table.schema.metadata[_STAMPS])
            if facts["version"] == _VERSION:
                stamps = {int(step): text for step, text in facts["stamps"].items()}
                return stamps, table.to_pandas()
        except (OSError, pa.ArrowException, LookupError, TypeError, ValueError):
            pass
        return {}, pd.DataFrame()

    def _write(self, name: str) -> None:
        """Write a table under its name once it is complete; warn where it cannot be."""
        stamps, frame = self._tables[name]
        facts = json.dumps({"version": _VERSION, "stamps": stamps})
        table = pa.Table.from_pandas(frame, preserve_index=False)
        table = table.replace_schema_metadata(
            {**(table.schema.metadata or {}), _STAMPS: facts.encode()}
        )
        files = self._folder.files
        target = f"{self.path}/{name}"
        partial = f"{self.path}/.{name}.{uuid.uuid4().hex}.partial"
        try:
            files.create_dir(self.path, recursive=True)
            with files.open_output_stream(partial) as file:
                pq.write_table(table, file, compression="zstd")
            if self._folder.is_local:
                os.replace(partial, target)  # noqa: PTH105 strings of a filesystem
            else:
                files.move(partial, target)
        except (OSError, pa.ArrowException) as error:
            warnings.warn(
                printable(
                    f"{self.path}: the index cannot be written ({error!s:.80});"
                    " the next session computes the summaries again"
                ),
                stacklevel=2,
            )

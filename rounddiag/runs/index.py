"""The index of a run: tables derived from its step files, kept beside them.

Each table is a Parquet file in the hidden folder `.rounddiag_index`. It holds rows of
steps, and the name, size and time of the files that they were computed from. Rows whose
files have changed are computed again. The folder can be deleted at any time.
"""

from __future__ import annotations

import json
import os
import uuid
import warnings
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from rounddiag.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rounddiag.runs.folder import RunFolder, StepFiles


FOLDER = ".rounddiag_index"
_STAMPS = b"rounddiag.stamps"
_VERSION = "1"  # of the rows; tables of another version are computed again


class Index:
    """The derived tables of a run.

    Parameters
    ----------
    folder : RunFolder
    """

    def __init__(self, folder: RunFolder) -> None:
        self._files = folder.files
        self._is_local = folder.is_local
        info = self._files.get_file_info(folder.root)
        is_file = info.type == fs.FileType.File
        base = folder.root.rpartition("/")[0] if is_file else folder.root
        self.path = f"{base}/{FOLDER}"
        self._tables: dict[str, tuple[dict[int, str], pd.DataFrame]] = {}

    def missing(self, name: str, steps: Iterable[StepFiles]) -> list[StepFiles]:
        """Return the steps that a table lacks, or has of other files."""
        stamps = self._table(name)[0]
        return [one for one in steps if stamps.get(one.step) != one.stamp]

    def rows(self, name: str, steps: Iterable[StepFiles]) -> pd.DataFrame:
        """Return the rows of these steps, as far as their files are unchanged."""
        stamps, frame = self._table(name)
        kept = [one.step for one in steps if stamps.get(one.step) == one.stamp]
        if len(frame) == 0:
            return frame
        chosen = frame[frame["step"].isin(kept)]
        return chosen.sort_values("step", kind="stable", ignore_index=True)

    def add(self, name: str, computed: Mapping[StepFiles, pd.DataFrame]) -> None:
        """Put the rows of some steps in the place of their old ones, and save them."""
        if not computed:
            return
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
            with self._files.open_input_file(f"{self.path}/{name}") as file:
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
        target = f"{self.path}/{name}"
        partial = f"{self.path}/.{name}.{uuid.uuid4().hex}.partial"
        try:
            self._files.create_dir(self.path, recursive=True)
            with self._files.open_output_stream(partial) as file:
                pq.write_table(table, file, compression="zstd")
            if self._is_local:
                os.replace(partial, target)  # noqa: PTH105 strings of a filesystem
            else:
                self._files.move(partial, target)
        except (OSError, pa.ArrowException) as error:
            warnings.warn(
                printable(
                    f"{self.path}: the index cannot be written ({error!s:.80});"
                    " the next session computes the summaries again"
                ),
                stacklevel=2,
            )

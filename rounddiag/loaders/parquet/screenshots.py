"""Screenshots that stay in their file until one is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.vision import EncodedScreenshot, Screenshot

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image

COLUMN = "screenshots"
BYTES = f"{COLUMN}.list.element.bytes"


@dataclass(frozen=True, kw_only=True)
class StoredScreenshot(Screenshot):
    """A screenshot of a saved batch, read each time it is asked for.

    Attributes
    ----------
    file : Path
        The file of the batch.
    stamp : tuple of int
        Size and time of the file when the batch was read.
    row_group, row, index : int
        Where it stands: the row in its row group, and the element of the row's list.
    """

    file: Path
    stamp: tuple[int, int]
    row_group: int
    row: int
    index: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.encoded().size

    def image(self) -> Image:
        """Decode the picture."""
        return self.encoded().image()

    def png(self) -> bytes:
        """Return the picture as PNG."""
        return self.encoded().png()

    def encoded(self) -> EncodedScreenshot:
        """Read the picture from the file.

        Raises
        ------
        LoadError
            If the file is gone, changed since the batch was read, or is broken.
        """
        try:
            is_same = stamp_of(self.file) == self.stamp
            data = self._read() if is_same else None
        except BROKEN as error:
            raise _changed(self.file, str(error)) from error
        if not isinstance(data, bytes):
            raise _changed(self.file, "another size or time")
        return EncodedScreenshot(
            data=data,
            round=self.round,
            position=self.position,
            seen_size=self.seen_size,
        )

    def _read(self) -> object:
        with pq.ParquetFile(self.file) as source:
            column = source.read_row_group(
                self.row_group, columns=[BYTES], use_threads=False
            )[COLUMN]
        return column[self.row].values.field("bytes")[self.index].as_py()


def stamp_of(file: Path) -> tuple[int, int]:
    """Return size and time of a file, which tell whether it changed."""
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _changed(file: Path, found: str) -> LoadError:
    return LoadError.build(
        file=file,
        key=COLUMN,
        expected="the file as it was when the batch was loaded",
        found=found,
        advice="Load the batch again.",
    )

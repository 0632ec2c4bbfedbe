"""Screenshots that stay in their file until one is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.vision import EncodedScreenshot, Screenshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from PIL.Image import Image

COLUMN = "screenshots"
BYTES, ROUND = f"{COLUMN}.list.element.bytes", f"{COLUMN}.list.element.round"
TYPE = pa.list_(
    pa.struct([("bytes", pa.binary()), ("path", pa.string()), ("round", pa.int32())])
)


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
        return EncodedScreenshot(data=data, round=self.round)

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


def screenshots_of(
    source: pq.ParquetFile, file: Path
) -> tuple[tuple[Screenshot, ...], ...]:
    """Return the screenshots of every sample, without reading their bytes.

    Raises
    ------
    LoadError
        If the column holds anything else.
    """
    kind = source.schema_arrow.field(COLUMN).type
    if kind != TYPE:
        raise LoadError.build(
            key=COLUMN,
            expected=str(TYPE),
            found=str(kind),
            advice="Save the batch with `rounddiag.save`.",
        )
    stamp = stamp_of(file)
    rows = source.read(columns=[ROUND], use_threads=False)[COLUMN].to_pylist()
    return tuple(
        tuple(
            StoredScreenshot(
                round=element["round"],
                file=file,
                stamp=stamp,
                row_group=group,
                row=row,
                index=index,
            )
            for index, element in enumerate(elements)
        )
        for (group, row), elements in zip(_places(source), rows, strict=True)
    )


def screenshot_array(images: tuple[tuple[Screenshot, ...], ...]) -> pa.Array:
    """Return screenshots as a column, as they are stored already or else as PNG."""
    rows = [
        [
            {"bytes": _encoded_bytes(shot), "path": None, "round": shot.round}
            for shot in shots
        ]
        for shots in images
    ]
    return pa.array(rows, TYPE)


def _places(source: pq.ParquetFile) -> Iterator[tuple[int, int]]:
    for group in range(source.num_row_groups):
        for row in range(source.metadata.row_group(group).num_rows):
            yield group, row


def _encoded_bytes(screenshot: Screenshot) -> bytes:
    if isinstance(screenshot, StoredScreenshot):
        screenshot = screenshot.encoded()
    if isinstance(screenshot, EncodedScreenshot):
        return screenshot.data
    return screenshot.png()


def _changed(file: Path, found: str) -> LoadError:
    return LoadError.build(
        file=file,
        key=COLUMN,
        expected="the file as it was when the batch was loaded",
        found=found,
        advice="Load the batch again.",
    )

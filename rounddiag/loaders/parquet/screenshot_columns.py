"""Screenshots as columns.

A list of encoded pictures a sample, as Hugging Face `datasets` stores one, and beside
it two lists with the round and the position of each. The first layout had the round
among the fields of the picture, and no position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.budget import PICTURE, check_weights
from rounddiag.loaders.parquet.screenshots import COLUMN, StoredScreenshot, stamp_of
from rounddiag.vision import EncodedScreenshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow.parquet as pq

    from rounddiag.vision import Screenshot

_ROUNDS, _POSITIONS = "screenshot_rounds", "screenshot_positions"
_PATH, _ROUND = f"{COLUMN}.list.element.path", f"{COLUMN}.list.element.round"
_PICTURE = [("bytes", pa.binary()), ("path", pa.string())]
_TYPE = pa.list_(pa.struct(_PICTURE))
_FIRST_TYPE = pa.list_(pa.struct([*_PICTURE, ("round", pa.int32())]))
_NUMBERS = pa.list_(pa.int32())
# What tells `datasets` to show the column as pictures, in a form that all its versions
# understand.
FEATURES = {COLUMN: {"feature": {"_type": "Image"}, "_type": "Sequence"}}


def screenshots_of(
    source: pq.ParquetFile, file: Path
) -> tuple[tuple[Screenshot, ...], ...]:
    """Return the screenshots of every sample, without reading their bytes.

    Raises
    ------
    LoadError
        If the columns hold anything else.
    """
    stamp = stamp_of(file)
    rows = zip(_places(source), _known(source, file), strict=True)
    return tuple(
        tuple(
            StoredScreenshot(
                round=round_,
                position=position,
                file=file,
                stamp=stamp,
                row_group=group,
                row=row,
                index=index,
            )
            for index, (round_, position) in enumerate(pictures)
        )
        for (group, row), pictures in rows
    )


def screenshot_columns(
    images: tuple[tuple[Screenshot, ...], ...],
) -> Iterator[tuple[pa.Field, pa.Array]]:
    """Yield screenshots as columns, as they are stored already or else as PNG."""
    encoded = [
        [{"bytes": _encoded_bytes(shot), "path": None} for shot in shots]
        for shots in images
    ]
    rounds = [[shot.round for shot in shots] for shots in images]
    positions = [[shot.position for shot in shots] for shots in images]
    yield pa.field(COLUMN, _TYPE), pa.array(encoded, _TYPE)
    yield pa.field(_ROUNDS, _NUMBERS), pa.array(rounds, _NUMBERS)
    yield pa.field(_POSITIONS, _NUMBERS), pa.array(positions, _NUMBERS)


def _known(
    source: pq.ParquetFile, file: Path
) -> list[list[tuple[int | None, int | None]]]:
    """Return round and position of every picture, a list a sample."""
    is_first = _is_first(source.schema_arrow)
    names = [_ROUND] if is_first else [_PATH, _ROUNDS, _POSITIONS]
    table = source.read(names, use_threads=False)
    sizes = pc.list_value_length(table[COLUMN]).to_pylist()
    check_weights(file, (PICTURE * size for size in sizes))
    pictures = table[COLUMN].to_pylist()
    if is_first:
        return [[(picture["round"], None) for picture in row] for row in pictures]
    rounds, positions = (table[name].to_pylist() for name in (_ROUNDS, _POSITIONS))
    return [
        [(round_, position) for _, round_, position in zip(*row, strict=True)]
        for row in zip(pictures, rounds, positions, strict=True)
    ]


def _is_first(schema: pa.Schema) -> bool:
    """Whether screenshots are stored as in the first layout; in neither is an error."""
    types = {field.name: field.type for field in schema}
    found = [types.get(name) for name in (COLUMN, _ROUNDS, _POSITIONS)]
    if found[0] != _FIRST_TYPE and found != [_TYPE, _NUMBERS, _NUMBERS]:
        raise LoadError.build(
            key=COLUMN,
            expected=f"{_TYPE}, and `{_ROUNDS}` and `{_POSITIONS}` beside it",
            found=", ".join(map(str, found)),
            advice="Save the batch with `rounddiag.save`.",
        )
    return bool(found[0] == _FIRST_TYPE)


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

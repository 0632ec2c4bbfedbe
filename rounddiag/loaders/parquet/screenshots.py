"""Screenshots that stay in their file until one is requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.columns import BROKEN, open_parquet, resave_error
from rounddiag.vision import EncodedScreenshot, Screenshot, StoredScreenshot

COLUMN = "screenshots"
BYTES = f"{COLUMN}.list.element.bytes"


def _read(
    file: Path, stamp: tuple[int, int], row_group: int, row: int, index: int
) -> bytes:
    try:
        is_same = _file_stamp(file) == stamp
        data = _read_bytes(file, row_group, row, index) if is_same else None
    except BROKEN as error:
        raise _change_error(file, str(error)) from error
    if not isinstance(data, bytes):
        raise _change_error(file, "another size or time")
    return data


def _read_bytes(file: Path, row_group: int, row: int, index: int) -> object:
    with open_parquet(file) as source:
        column = source.read_row_group(row_group, columns=[BYTES], use_threads=False)[
            COLUMN
        ]
    return column[row].values.field("bytes")[index].as_py()


def _file_stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _change_error(file: Path, change: str) -> LoadError:
    return LoadError.build(
        file=file,
        key=COLUMN,
        expected="the file as it was when the batch was loaded",
        found=change,
        advice="Load the batch again.",
    )


PICTURE_FACTS = "screenshot_facts"
_PATH, _ROUND = f"{COLUMN}.list.element.path", f"{COLUMN}.list.element.round"
_PICTURE = [("bytes", pa.binary()), ("path", pa.string())]
_TYPE = pa.list_(pa.struct(_PICTURE))
_TYPE_1 = pa.list_(pa.struct([*_PICTURE, ("round", pa.int32())]))
_NAMES = ("round", "position", "seen_width", "seen_height")
_FACTS_TYPE = pa.list_(pa.struct([(name, pa.int32()) for name in _NAMES]))
# Makes every version of `datasets` show the column as pictures.
HUGGINGFACE_FEATURES = {COLUMN: {"feature": {"_type": "Image"}, "_type": "Sequence"}}


def stored_screenshots(
    source: pq.ParquetFile, file: Path, group: int | None = None
) -> tuple[tuple[Screenshot, ...], ...]:
    """Return the screenshots of every sample, without reading their bytes.

    With `group`, those of one row group.
    """
    stamp = _file_stamp(file)
    groups = range(source.num_row_groups) if group is None else [group]
    rows = zip(_places(source, groups), _all_facts(source, groups), strict=True)
    return tuple(
        tuple(
            StoredScreenshot(
                **_screenshot_fields(facts),
                data=partial(_read, file, stamp, group, row, index),
            )
            for index, facts in enumerate(pictures)
        )
        for (group, row), pictures in rows
    )


def read_screenshots(
    parts: Callable[[list[str]], Iterable[pa.Table]],
) -> tuple[tuple[EncodedScreenshot, ...], ...]:
    """Return the screenshots of every sample with their bytes.

    `parts` reads some columns, some rows after the other.
    """
    return tuple(
        tuple(
            EncodedScreenshot(data=picture["bytes"], **_screenshot_fields(facts))
            for picture, facts in zip(pictures, row, strict=True)
        )
        for part in map(_require_types, parts([COLUMN, PICTURE_FACTS]))
        for pictures, row in zip(
            part.column(COLUMN).to_pylist(),
            part.column(PICTURE_FACTS).to_pylist(),
            strict=True,
        )
    )


def _require_types(part: pa.Table) -> pa.Table:
    for name, kind in ((COLUMN, _TYPE), (PICTURE_FACTS, _FACTS_TYPE)):
        actual = part.schema.field(name).type
        if actual != kind:
            raise resave_error(name, str(kind), str(actual))
    return part


def screenshot_columns(
    images: tuple[tuple[Screenshot, ...], ...],
) -> Iterator[tuple[pa.Field, pa.Array]]:
    """Yield screenshots as columns, in the encoding they have, or else as PNG."""
    encoded = [
        [{"bytes": _encoded_bytes(shot), "path": None} for shot in shots]
        for shots in images
    ]
    facts = [[_facts(shot) for shot in shots] for shots in images]
    yield pa.field(COLUMN, _TYPE), pa.array(encoded, _TYPE)
    yield pa.field(PICTURE_FACTS, _FACTS_TYPE), pa.array(facts, _FACTS_TYPE)


def _facts(screenshot: Screenshot) -> dict[str, int | None]:
    width, height = screenshot.seen_size or (None, None)
    values = (screenshot.round, screenshot.position, width, height)
    return dict(zip(_NAMES, values, strict=True))


def _screenshot_fields(facts: dict[str, int | None]) -> dict[str, Any]:
    width, height = facts.get("seen_width"), facts.get("seen_height")
    return {
        "round": facts["round"],
        "position": facts.get("position"),
        "seen_size": (width, height) if width and height else None,
    }


def _all_facts(
    source: pq.ParquetFile, groups: Sequence[int]
) -> list[list[dict[str, int | None]]]:
    is_first = _is_version_1(source.schema_arrow)
    names = [_ROUND] if is_first else [_PATH, PICTURE_FACTS]
    table = source.read_row_groups(groups, names, use_threads=False)
    sizes = pc.list_value_length(table[COLUMN])
    column = table[COLUMN if is_first else PICTURE_FACTS]
    if not pc.list_value_length(column).equals(sizes):
        expected = f"as many entries a row as `{COLUMN}` has"
        raise resave_error(PICTURE_FACTS, expected, "other numbers of them")
    return column.to_pylist()


def _is_version_1(schema: pa.Schema) -> bool:
    """Return whether the layout is version 1; a LoadError if it is neither version."""
    types = {field.name: field.type for field in schema}
    pair = [types.get(name) for name in (COLUMN, PICTURE_FACTS)]
    if pair[0] != _TYPE_1 and pair != [_TYPE, _FACTS_TYPE]:
        expected = f"{_TYPE}, and `{PICTURE_FACTS}` beside it"
        raise resave_error(COLUMN, expected, ", ".join(map(str, pair)))
    return bool(pair[0] == _TYPE_1)


def _places(source: pq.ParquetFile, groups: Sequence[int]) -> Iterator[tuple[int, int]]:
    for group in groups:
        for row in range(source.metadata.row_group(group).num_rows):
            yield group, row


def _encoded_bytes(screenshot: Screenshot) -> bytes:
    if isinstance(screenshot, StoredScreenshot):
        screenshot = screenshot.read()
    if isinstance(screenshot, EncodedScreenshot):
        return screenshot.data
    return screenshot.png()

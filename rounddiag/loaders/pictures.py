"""Pictures in a column, as Hugging Face `datasets` stores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rounddiag.vision import EncodedScreenshot


def encoded_screenshots(
    rows: Iterable[object],
) -> tuple[tuple[EncodedScreenshot, ...], ...]:
    """Return the pictures of each row: one, or a list of them, or none.

    A picture is bytes, or a struct of `bytes` and `path`. A path is never opened, as a
    file must not make us read others: a picture that is nothing but a path is left out.

    Examples
    --------
    >>> rows = [[{"bytes": b"1", "path": None}], None, b"2", {"path": "/etc/passwd"}]
    >>> [[shot.data for shot in row] for row in encoded_screenshots(rows)]
    [[b'1'], [], [b'2'], []]
    """
    return tuple(
        tuple(
            EncodedScreenshot(data=data) for data in map(_data, _pictures(row)) if data
        )
        for row in rows
    )


def _pictures(row: Any) -> Sequence[object]:  # noqa: ANN401 of Arrow or Python
    row = row.as_py() if hasattr(row, "as_py") else row
    return row if isinstance(row, list | tuple) else [row]


def _data(picture: object) -> bytes | None:
    data = picture.get("bytes") if isinstance(picture, Mapping) else picture
    return data if isinstance(data, bytes) else None

"""Pictures in a column, as Hugging Face `datasets` stores them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.vision import EncodedScreenshot

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.source import Source


def with_encoded(batch: Batch, rows: Iterable[object], source: Source) -> Batch:
    """Return a batch with the pictures of each row: one, or a list of them, or none.

    A picture is bytes, or a struct of `bytes` and `path`. A path is never opened, as a
    file must not make us read others: what is nothing but a path is left out and told
    in `meta["screenshots"]`.

    Raises
    ------
    LoadError
        If the rows are not as many as the samples.
    """
    try:
        found = [[_data(picture) for picture in _pictures(row)] for row in rows]
    except ValueError as error:  # Arrow's structs, with names that are no text
        raise source.damaged(found=f"{error!s:.80}") from error
    if len(found) != len(batch):
        raise LoadError.build(
            file=source.path,
            key="images",
            expected=f"{len(batch)} rows, one a sample",
            found=f"{len(found)}",
            advice="Save a list of pictures for every sample; it may be empty.",
        )
    images = tuple(
        tuple(EncodedScreenshot(data=data) for data in row if data is not None)
        for row in found
    )
    absent = sum(row.count(None) for row in found)
    fact = f"{absent} of `images` are not in the file: paths are not opened"
    told = {"screenshots": [fact]} if absent else {}
    return replace(batch, images=images, meta={**batch.meta, **told})


def _pictures(row: Any) -> Sequence[object]:  # noqa: ANN401 of Arrow or Python
    row = row.as_py() if hasattr(row, "as_py") else row
    pictures = row if isinstance(row, list | tuple) else [row]
    return [picture for picture in pictures if picture is not None]


def _data(picture: object) -> bytes | None:
    data = picture.get("bytes") if isinstance(picture, Mapping) else picture
    return data if isinstance(data, bytes) else None

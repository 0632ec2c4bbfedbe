"""Parquet -> Batch."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rounddiag.batch import Batch
from rounddiag.errors import LoadError, RounddiagError
from rounddiag.loaders.parquet.budget import ROW, check_size, check_weights
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.loaders.parquet.footer import Footer, find_tokenizer
from rounddiag.loaders.parquet.from_table import fields_of
from rounddiag.loaders.parquet.screenshot_columns import screenshots_of
from rounddiag.loaders.parquet.screenshots import COLUMN
from rounddiag.loaders.parquet.table_reader import TableReader

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from rounddiag.loaders.source import Source


def load_parquet(path: str | os.PathLike[str]) -> Batch:
    """Read a batch that `save` wrote.

    Screenshots stay in the file until one is asked for, so the file has to stay.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    Batch

    Raises
    ------
    LoadError
        If the file is broken, not ours, or newer than this package.
    """
    file = Path(path)
    with _load_errors(file), pq.ParquetFile(file) as source:
        footer = Footer.from_metadata(source.schema_arrow.metadata)
        check_size(file, lambda _: True)  # pictures too, which are read one by one
        check_weights(file, [ROW * source.metadata.num_rows])
        table = TableReader(source)
        return Batch(
            **fields_of(table),
            images=screenshots_of(source, file) if COLUMN in table else None,
            step=footer.step,
            meta=footer.meta_of(file),
            tokenizer=find_tokenizer(footer, file.parent),
        )


def parquet_names(source: Source) -> dict[str, None]:
    """Return the names in a Parquet file: of its columns, and in its metadata.

    Raises
    ------
    LoadError
        If it is damaged.
    """
    try:
        with pq.ParquetFile(source.path) as file:
            schema = file.schema_arrow
    except BROKEN as error:
        found = f"{type(error).__name__}: {error!s:.80}"
        raise source.damaged(found=found) from error
    told = [name.decode(errors="replace") for name in schema.metadata or {}]
    return dict.fromkeys([*schema.names, *told])


@contextmanager
def _load_errors(file: Path) -> Iterator[None]:
    """Let nothing but a LoadError out, and name the file in it."""
    try:
        yield
    except RounddiagError as error:
        msg = f"{file}: {error}"
        raise LoadError(msg) from error
    except BROKEN as error:
        raise LoadError.build(
            file=file,
            expected="a whole Parquet file as `rounddiag.save` writes it",
            found=f"{type(error).__name__}: {str(error)[:200]}",
            advice="Save the batch again, or check that all of it was copied.",
        ) from error

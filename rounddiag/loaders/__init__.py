"""Files to batches: `load` detects the format, `save` writes rounddiag's own.

=================  ==================================================================
`open`             `load`: files, or a table in memory, as one batch
`paths`            which files a path means
`untrusted`        a child process with limits, for files from strangers
`detection`        what a file holds, and which of all formats that is
`column_mapping`   columns under the user's own names
`unsupported`      files that are refused, and what to do about it
`format`           what a format is
`source`           a file that a batch still reads from
`fields`           fields under verl's names, as a Batch: where all formats meet
`frameworks`       the files of each framework; each module ends in its `Format`
`pickle`           an interpreter of pickles that makes plain data and runs nothing
`lazy`             tensors and arrays that stay in the file until they are read
`tabular`          tables: foreign Parquet, Arrow, JSON lines, dictionaries, frames
`assembly`         files, rows and rounds put together; screenshots given a place
`parquet`          rounddiag's own file
`rescoring`        scores made elsewhere: `export_rescore`, `attach`
=================  ==================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rounddiag.loaders.detection import formats
from rounddiag.loaders.open import load

if TYPE_CHECKING:
    from rounddiag.loaders.parquet import save
    from rounddiag.loaders.rescoring import attach, export_rescore

__all__ = ["attach", "export_rescore", "formats", "load", "save"]

# Imported on first use, because they import pyarrow or pandas.
_LAZY = {"attach": "rescoring", "export_rescore": "rescoring", "save": "parquet"}


def __getattr__(name: str) -> object:
    """Import what `name` stands for."""
    if name not in _LAZY:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)

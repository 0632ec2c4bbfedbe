"""Files to batches: `load` finds the format from the content, `save` writes our own.

=============  ======================================================================
`files`        which files a path means, what each holds, and which format that is
`pickles`      an interpreter of pickles that makes plain data and runs nothing
`tensors`      tensors and arrays that stay in the file until they are read
`records`      JSON lines
`tables`       columns under any names: foreign Parquet, Arrow, dictionaries, frames
`frameworks`   the files of each framework; each module ends in its `Format`
`fields`       fields under verl's names, as a Batch: where all of them meet
`screens`      screenshots, and where they stand among the tokens
`joining`      the files of one step, rows that are steps, rounds divided
`parquet`      our own file
`scores`       scores made elsewhere
=============  ======================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING

from rounddiag.loaders.open import load
from rounddiag.loaders.registry import formats

if TYPE_CHECKING:
    from rounddiag.loaders.parquet import save
    from rounddiag.loaders.scores import attach, export_rescore

__all__ = ["attach", "export_rescore", "formats", "load", "save"]

# Found on first use, as they import pyarrow or pandas.
_LATER = {"attach": "scores", "export_rescore": "scores", "save": "parquet"}


def __getattr__(name: str) -> object:
    """Import what `name` stands for."""
    if name not in _LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)

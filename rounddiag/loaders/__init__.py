"""Files to batches: `load` finds the format from the content, `save` writes our own.

`places` says which files a path means, `content` what a file holds, and `registry`
which format that is. Each framework's file has a module that ends in a `Format`; all
go through `fields.batch_from_fields`, which knows what verl's names mean.
`concatenation` joins the files of one step, and `joining` the rows that are steps.
Pickles are read by an interpreter that runs nothing (`pickle_machine`), and big tensors
stay in the file (`tensors`).
"""

from typing import TYPE_CHECKING

from rounddiag.loaders.open import load
from rounddiag.loaders.registry import formats

if TYPE_CHECKING:
    from rounddiag.loaders.parquet import save

__all__ = ["formats", "load", "save"]


def __getattr__(name: str) -> object:
    """Import `save`, and pyarrow with it, when it is needed."""
    if name != "save":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from rounddiag.loaders.parquet import save

    return save

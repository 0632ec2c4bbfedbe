"""Find the format of a file from what it holds, and read it as a Batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.errors import LoadError
from rounddiag.loaders.content import looks_like, names_of, read_root
from rounddiag.loaders.places import files_of
from rounddiag.loaders.registry import closest, find_format
from rounddiag.loaders.source import Source

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from rounddiag.batch import Batch

# A file that is wrong in a new way is still a LoadError, with its cause.
_UNFORESEEN = (
    ArithmeticError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def load(path: str | os.PathLike[str]) -> Batch:
    """Open a saved batch; the format is found from the content, not from the name.

    Nothing in the file is executed, and no framework needs to be installed. Pixel
    values stay in the file until a screenshot is asked for. `rounddiag.formats()`
    lists what can be opened.

    Parameters
    ----------
    path : path-like
        A file, a folder that holds one step, or a glob.

    Returns
    -------
    Batch

    Raises
    ------
    LoadError
        If the file is of another kind, is damaged, or lacks what a batch needs.

    Examples
    --------
    >>> import rounddiag as rd
    >>> rd.load("sample_data/image_window_verl.pkl").meta["mask_source"]
    'response_mask'
    """
    (file,) = files_of(path)
    return _read(file)


def _read(file: Path) -> Batch:
    """Read one file."""
    source = Source.of_file(file)
    try:
        return _open(source)
    except LoadError:
        raise
    except _UNFORESEEN as error:
        found = f"what rounddiag did not foresee: {type(error).__name__}: {error!s:.80}"
        raise source.damaged(found=found) from error


def _open(source: Source) -> Batch:
    root = read_root(source)
    form = find_format(names_of(root))
    if form is None:
        raise _unknown(source, root)
    return form.read(root, source)


def _unknown(source: Source, root: object) -> LoadError:
    near = [
        f"{form.name} ({form.framework}), which also has {', '.join(missing)}"
        for form, missing in closest(names_of(root))
    ]
    close = f"It comes close to: {'; '.join(near)}. " if near else ""
    return source.error(
        expected="a saved batch",
        found=looks_like(root),
        advice=f"{close}`rounddiag.formats()` lists what can be opened.",
    )

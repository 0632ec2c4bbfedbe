"""Find the format of a file from what it holds, and read it as a Batch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rounddiag.errors import LoadError
from rounddiag.loaders.content import looks_like, names_of, read_root
from rounddiag.loaders.in_memory import in_memory
from rounddiag.loaders.places import files_of
from rounddiag.loaders.registry import closest, find_format
from rounddiag.loaders.renaming import renamed
from rounddiag.loaders.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


def load(
    path: str | os.PathLike[str] | Any,  # noqa: ANN401 frames and data sets need not be installed
    *,
    columns: Mapping[str, str] | None = None,
) -> Batch:
    """Open a saved batch; the format is found from the content, not from the name.

    Nothing in the file is executed, and no framework needs to be installed. Pixel
    values stay in the file until a screenshot is asked for. `rounddiag.formats()`
    lists what can be opened.

    Parameters
    ----------
    path : path-like, or mapping, frame or data set
        A file, a folder that holds one step, or a glob; or the columns themselves, with
        a row a sample.
    columns : mapping of str to str, optional
        Our name of a field, and the name that a table has for it: `{"old_log_probs":
        "my_name"}`.

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
    if not isinstance(path, str | os.PathLike):
        table, source = in_memory(path)
        return _guarded(lambda: _batch(table, source, columns), source)
    (file,) = files_of(path)
    source = Source.of_file(file)
    return _guarded(lambda: _batch(read_root(source), source, columns), source)


def _guarded(read: Callable[[], Batch], source: Source) -> Batch:
    """Let nothing but a LoadError out."""
    try:
        return read()
    except LoadError:
        raise
    except _UNFORESEEN as error:
        found = f"what rounddiag did not foresee: {type(error).__name__}: {error!s:.80}"
        raise source.damaged(found=found) from error


def _batch(root: object, source: Source, columns: Mapping[str, str] | None) -> Batch:
    if columns:
        root = renamed(root, columns, source)
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

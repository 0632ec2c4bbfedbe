"""Files, or a table in memory, as one Batch: sniff, map columns, read the format."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.concatenation import concatenate
from rounddiag.loaders.column_mapping import (
    check_kinds,
    check_used,
    rename_columns,
    response_column,
)
from rounddiag.loaders.registry import find_format
from rounddiag.loaders.sniff import columns_in_one_line, content_names, open_container
from rounddiag.loaders.source import Source
from rounddiag.loaders.tabular.arrays import read_tensors, table_of
from rounddiag.loaders.tabular.in_memory import in_memory
from rounddiag.loaders.tabular.json_lines import JsonLines
from rounddiag.loaders.unsupported import missing_columns_error, unsupported_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from rounddiag.batch import Batch
    from rounddiag.loaders.format import Format

    Columns = Mapping[str, str]


# A file that is wrong in a new way is still a LoadError, with its cause.
_UNEXPECTED = (
    ArithmeticError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)


def read_files(
    files: Sequence[Path], path: str | os.PathLike[str], columns: Columns | None
) -> Batch:
    """Return the batch of one step, whose files are joined end to end.

    Of several files, `meta["source"]` names the path and counts them, and the sample
    column `file` says which file a sample came from.

    Parameters
    ----------
    files : sequence of Path
        At least one.
    path : path-like
        The file, folder or glob that the user passed.
    columns : mapping of str to str, optional
        See `rounddiag.load`.

    Raises
    ------
    LoadError
        If a file cannot be read, or they are of several formats or steps.
    """
    if len(files) > 1:
        batch = concatenate(_read_each(files, columns))
        source = f"{path} ({len(files)} files)"
    else:
        batch = read_file(files[0], columns)[1]
        source = batch.meta["source"]
        # A relative path stays relative: a notebook need not show where its folder is.
        if source == str(files[0]) == str(Path(path).expanduser().absolute()):
            source = str(path)
    return replace(batch, meta={**batch.meta, "source": source})


def _read_each(files: Sequence[Path], columns: Columns | None) -> Iterator[Batch]:
    from tqdm.auto import tqdm

    folder = Path(os.path.commonpath([file.parent for file in files]))
    first = None
    for file in tqdm(files, unit="file", delay=1, leave=False):
        form, batch = read_file(file, columns)
        first = first or form
        if form.name != first.name:
            raise LoadError.build(
                file=file,
                expected=f"the same format as in {files[0]}: {first.name}",
                found=form.name,
                advice="Pass files of one format.",
            )
        name = file.relative_to(folder).as_posix()
        names = {"file": np.full(len(batch), name, dtype=object)}
        yield replace(batch, sample_columns={**names, **batch.sample_columns})


def read_file(file: Path, columns: Columns | None) -> tuple[Format, Batch]:
    """Return the format of a file, found from its content, and its batch.

    Raises
    ------
    LoadError
        If the file is of another kind, is damaged, or lacks what a batch needs.
    """
    source = Source.of_file(file)
    return _guarded(lambda: open_container(source), source, columns)


def read_table(data: object, columns: Columns | None) -> Batch:
    """Return the batch of a mapping, frame or data set.

    Raises
    ------
    LoadError
        If it is none of them, or lacks what a batch needs.
    """
    table, source = in_memory(data)
    return _guarded(lambda: table, source, columns)[1]


def _guarded(
    open_root: Callable[[], object], source: Source, columns: Columns | None
) -> tuple[Format, Batch]:
    """Read a root; whatever fails is a LoadError."""
    try:
        return _read(open_root(), source, columns or {})
    except LoadError:
        raise
    except _UNEXPECTED as error:
        kind = type(error).__name__
        found = f"an unexpected error while reading it: {kind}: {error!s:.80}"
        raise source.damaged(found=found) from error


def _read(
    root: Any,  # noqa: ANN401 whatever a file holds
    source: Source,
    columns: Columns,
) -> tuple[Format, Batch]:
    table: Any = rename_columns(_rows_only(root, source), columns, source)
    form = find_format(content_names(table))
    if form is None and not columns:
        raise unsupported_error(source, table)
    is_generic = form is not None and form.read is read_tensors
    responses = response_column(content_names(table)) if is_generic else {}
    if form is None or (is_generic and not responses):
        raise missing_columns_error(source, root, columns)
    mapping = columns or responses
    if mapping:
        check_kinds(table_of(table, source), mapping, source)
    batch = form.read(table, source)
    check_used(batch, mapping, source)
    return form, batch


def _rows_only(root: object, source: Source) -> object:
    """Refuse JSON lines with all rows in one line, except a framework's."""
    columns = columns_in_one_line(root) if isinstance(root, JsonLines) else None
    if columns is not None:
        form = find_format(content_names(root))
        if form is None or form.read is read_tensors:
            raise unsupported_error(source, columns)
    return root

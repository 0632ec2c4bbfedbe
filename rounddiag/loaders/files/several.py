"""The files of one step, read one by one and joined end to end."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.errors import LoadError
from rounddiag.loaders.files.single import read_file
from rounddiag.loaders.joining.concatenation import concatenate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rounddiag.batch import Batch


def read_files(
    files: Sequence[Path],
    place: str | os.PathLike[str],
    columns: Mapping[str, str] | None,
) -> Batch:
    """Return what files of one format hold of one step.

    Of several, `meta["source"]` names the place and counts them, and the sample column
    `file` says which one a sample was in.

    Parameters
    ----------
    files : sequence of Path
        At least one.
    place : path-like
        The file, folder or glob that means them.
    columns : mapping of str to str, optional
        See `rounddiag.load`.

    Raises
    ------
    LoadError
        If a file cannot be read, or they are of several formats or steps.
    """
    if len(files) == 1:
        batch = read_file(files[0], columns)[1]
        source = batch.meta["source"]
        # As it was given: a notebook need not show where its folder lies.
        if source == str(files[0]) == str(Path(place).expanduser().absolute()):
            source = str(place)
    else:
        batch = concatenate(_read_each(files, columns))
        source = f"{place} ({len(files)} files)"
    return replace(batch, meta={**batch.meta, "source": source})


def _read_each(
    files: Sequence[Path], columns: Mapping[str, str] | None
) -> Iterator[Batch]:
    folder = Path(os.path.commonpath([file.parent for file in files]))
    first = None
    for file in _with_progress(files):
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
        named = {"file": np.full(len(batch), name, dtype=object)}
        yield replace(batch, sample_columns={**named, **batch.sample_columns})


def _with_progress(files: Sequence[Path]) -> Iterable[Path]:
    """Show a bar once reading takes over a second."""
    from tqdm.auto import tqdm

    return tqdm(files, unit="file", delay=1, leave=False)

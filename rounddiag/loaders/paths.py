"""The files that a path means: one file, those of a folder, or those of a glob."""

from __future__ import annotations

import os
import re
from glob import glob, has_magic
from pathlib import Path

from rounddiag.errors import LoadError
from rounddiag.loaders.natural_order import by_numbers
from rounddiag.loaders.registry import FORMATS
from rounddiag.wording import join_names

_URL = re.compile(r"[A-Za-z][\w+.-]+:/")  # `Path` makes one stroke of two
_MAX_NAMES = 4  # names of files in a message


def resolve_paths(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files that a path means, in the order of the numbers in their names.

    A folder means the files, at any depth, whose names match a format's patterns; more
    specific patterns are tried first. If the format has one file a step, several files
    are an error.

    Raises
    ------
    LoadError
        If there is no such file, or a folder holds several batches.
    """
    if _URL.match(os.fspath(path)):
        raise LoadError.build(
            file=path,
            expected="a path of this machine",
            found="a URL",
            advice="Copy it here first, or open it with fsspec.",
        )
    place = Path(path)
    place = (place.expanduser() if str(place).startswith("~") else place).absolute()
    if place.is_dir():
        return _of_folder(place)
    if not place.is_file() and has_magic(str(place)):
        matches = [Path(name) for name in glob(str(place), recursive=True)]  # noqa: PTH207 an absolute pattern, which `Path.glob` refuses
        files = _in_order([file for file in matches if file.is_file()])
        if files:
            return files
    if place.is_file():
        return [place]
    raise LoadError.build(
        file=place,
        expected="a file, a folder or a glob",
        found="nothing",
        advice="Pass the path of a saved batch.",
    )


def _of_folder(folder: Path) -> list[Path]:
    inside = _in_order([file for file in folder.rglob("*") if file.is_file()])
    for pattern, in_parts in _patterns():
        files = [file for file in inside if file.match(pattern)]
        if len(files) > 1 and not in_parts:
            raise _several(folder, files)
        if files:
            return files
    raise LoadError.build(
        file=folder,
        expected="a file with the name of a framework's file",
        found=_names(inside, folder),
        advice="`rounddiag.formats()` lists the names; pass the file itself.",
    )


def _patterns() -> list[tuple[str, bool]]:
    """Return the name patterns, and whether a step may have several such files.

    Patterns with a folder come first, those with only a suffix last.
    """
    patterns = [(pattern, form.in_parts) for form in FORMATS for pattern in form.files]
    return sorted(patterns, key=lambda it: (it[0].startswith("*."), "/" not in it[0]))


def _several(folder: Path, files: list[Path]) -> LoadError:
    return LoadError.build(
        file=folder,
        expected="the files of one step",
        found=f"{len(files)} batches: {_names(files, folder)}",
        advice="Pass one of the files.",
    )


def _names(files: list[Path], folder: Path) -> str:
    names = [file.relative_to(folder).as_posix() for file in files[:_MAX_NAMES]]
    return join_names(names, len(files), most=_MAX_NAMES) or "no file"


def _in_order(files: list[Path]) -> list[Path]:
    return sorted(files, key=lambda file: by_numbers(str(file)))

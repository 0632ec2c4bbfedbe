"""Resolve a path to files: one file, a folder, or a glob; tell it from a URL."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path, PurePosixPath

from rounddiag.errors import LoadError
from rounddiag.loaders.detection import FORMATS
from rounddiag.loaders.unopened import folder_error
from rounddiag.wording import by_numbers, join_names

# fsspec chains several by `::`. A drive of Windows has one letter.
_URL = re.compile(r"(\w+::)*[A-Za-z][\w+.-]+:/")
_MAX_NAMES = 4  # names of files in a message


def resolve_paths(path: str | os.PathLike[str]) -> list[Path]:
    """Return the files of a path, sorted by the numbers in their names.

    In a folder, at any depth, these are the files whose names match a pattern of a
    format. Specific patterns are tried first. Several files are an error if the format
    has one file per step, and so are files of several formats. Files that are named
    like a model's checkpoint are ignored.
    """
    if not os.fspath(path):
        raise LoadError.build(
            expected="a path", found="an empty text", advice="Pass that of a batch."
        )
    if is_url(path):
        raise LoadError.build(
            file=path,
            expected="a local path",
            found="a URL",
            advice="Copy it here first, or open it with fsspec.",
        )
    full = _full(path)
    try:
        return _existing_files(full)
    except OSError as error:  # such as a name that is too long, or no permission
        raise LoadError.build(
            file=f"{full!s:.200}",
            expected="a path that can be opened",
            found=error.strerror or "a system error",
            advice="Pass the path of a saved batch.",
        ) from error


def _full(path: str | os.PathLike[str]) -> Path:
    full = Path(path)
    return (full.expanduser() if str(full).startswith("~") else full).absolute()


def name_others(path: str | os.PathLike[str], files: Sequence[Path]) -> str:
    """Name the files of a folder that may be batches by their endings, but for some."""
    folder, opened = _full(path), {*files}
    endings = [pattern for pattern, _ in name_patterns() if pattern.startswith("*.")]
    others = [
        file
        for file in _in_order([*folder.rglob("*")] if folder.is_dir() else [])
        if file not in opened
        and any(is_like(file.as_posix(), pattern) for pattern in endings)
        and not any(is_like(file.as_posix(), p) for p in (*_COMPANIONS, _MIRROR))
        and not _CHECKPOINT.fullmatch(file.name)
        and file.is_file()
    ]
    return _relative_names(others, folder) if others else ""


def is_url(address: str | os.PathLike[str]) -> bool:
    """Return whether an address names its protocol, such as `s3://bucket/run`.

    One slash is enough, because `Path` removes the other.
    """
    return _URL.match(os.fspath(address)) is not None


def _existing_files(path: Path) -> list[Path]:
    if path.is_dir():
        return _list_folder(path)
    if not path.is_file() and has_magic(str(path)):
        matches = [Path(name) for name in glob(str(path), recursive=True)]  # noqa: PTH207 an absolute pattern, which `Path.glob` refuses
        files = _in_order([file for file in matches if file.is_file()])
        if files:
            return files
    if path.is_file():
        return [path]
    raise LoadError.build(
        file=path,
        expected="a file, a folder or a glob",
        found="nothing",
        advice="Pass the path of a saved batch.",
    )


def _list_folder(folder: Path) -> list[Path]:
    all_files = _in_order([file for file in folder.rglob("*") if file.is_file()])
    checkpoint = [file for file in all_files if _CHECKPOINT.fullmatch(file.name)]
    candidates = [file for file in all_files if file not in {*checkpoint}]
    for pattern, in_parts in name_patterns():
        files = [file for file in candidates if is_like(file.as_posix(), pattern)]
        if files:
            others = _other_batches(candidates, pattern, files)
            if others or (len(files) > 1 and not in_parts):
                raise several_batches(folder, [*files, *others])
            return files
    if checkpoint:
        raise LoadError.build(
            file=folder,
            expected="the files of one step",
            found=f"a model checkpoint: {_relative_names(checkpoint, folder)}",
            advice="A checkpoint holds weights: save a batch in the trainer.",
        )
    if error := folder_error(folder, candidates):
        raise error
    raise LoadError.build(
        file=folder,
        expected="a file with the name of a framework's file",
        found=_relative_names(candidates, folder),
        advice="`rounddiag.formats()` lists the names; pass the file itself.",
    )


# Weights and states of Hugging Face, DeepSpeed, FSDP and Megatron.
_CHECKPOINT = re.compile(
    r"(pytorch_|adapter_)?model([-_.].*)?\.(safetensors|bin|pt|pth)"
    r"|optim(izer)?([-_.].*)?\.(safetensors|bin|pt|pth)|extra_state.*\.pt"
    r"|(scheduler|lr_scheduler|rng_state|trainer_state|mp_rank|zero_pp_rank).*\.(pt|pth)"
    r"|consolidated.*\.(safetensors|pth)|training_args\.bin|.*\.distcp"
)


_ANY = ("*.", "[0-9]*.")
_COMPANIONS = {"rollout_data/*.pt"}  # slime's, which its train file reads itself
_MIRROR = "dashboard_columns/*.parquet"  # miles', of what its train files hold


def _other_batches(
    candidates: list[Path], chosen: str, files: list[Path]
) -> list[Path]:
    """Return the files that may be batches as well, in another format.

    Patterns that are a suffix, or a number and one, match many files: they count only
    if the chosen pattern is one of them.
    """
    is_specific = not chosen.startswith(_ANY)
    patterns = [
        pattern
        for pattern, _ in name_patterns()
        if not (is_specific and pattern.startswith(_ANY)) and pattern not in _COMPANIONS
    ]
    known, steps = {*files}, {file.stem.partition("_")[0] for file in files}
    return [
        file
        for file in candidates
        if file not in known
        and not (
            is_like(file.as_posix(), _MIRROR) and file.stem.rpartition("_")[2] in steps
        )
        and any(is_like(file.as_posix(), pattern) for pattern in patterns)
    ]


def is_like(path: str, pattern: str) -> bool:
    """Return whether the end of a path fits a pattern; its name is compared first.

    Examples
    --------
    >>> is_like("run/train_data/3.pt", "train_data/*.pt"), is_like("3.pt", "a/*.pt")
    (True, False)
    """
    folder, _, name = pattern.rpartition("/")
    is_named = fnmatchcase(path.rpartition("/")[2], name)
    return is_named and (not folder or PurePosixPath(path).match(pattern))


def name_patterns() -> list[tuple[str, bool]]:
    """Return the name patterns, and whether a step may have several such files.

    Patterns with a folder come first, those with only a suffix last.
    """
    patterns = [(pattern, form.in_parts) for form in FORMATS for pattern in form.files]
    return sorted(
        patterns,
        key=lambda pair: (
            *(pair[0].startswith("*."), "/" not in pair[0]),
            pair[0] == _MIRROR,
        ),
    )


def several_batches(folder: Path, files: list[Path]) -> LoadError:
    """Return the error for a folder of files that are not of one step."""
    return LoadError.build(
        file=folder,
        expected="the files of one step",
        found=f"{len(files)} batches: {_relative_names(files, folder)}",
        advice="Pass one of the files.",
    )


def _relative_names(files: list[Path], folder: Path) -> str:
    names = [file.relative_to(folder).as_posix() for file in files[:_MAX_NAMES]]
    return join_names(names, len(files), most=_MAX_NAMES) or "no file"


def _in_order(files: list[Path]) -> list[Path]:
    return sorted(files, key=lambda file: by_numbers(str(file)))

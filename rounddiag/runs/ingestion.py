"""`ingest`: the files of any framework become step files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import pyarrow.parquet as pq

from rounddiag.batch import Batch
from rounddiag.capture.options import (
    absolute_folder,
    make_capture_folder,
    remove_stale_files,
)
from rounddiag.capture.step_file import save_in
from rounddiag.errors import LoadError, require_one_of
from rounddiag.loaders.output import FileKind, refusal
from rounddiag.loaders.parquet.columns import BROKEN
from rounddiag.loaders.parquet.metadata import Footer
from rounddiag.loaders.parquet.writer import has_entry
from rounddiag.runs.engines import RunEngine, check_engine, map_items
from rounddiag.runs.folder import RunFolder, StepFiles
from rounddiag.runs.step_tables import load_step
from rounddiag.vision import EncodedScreenshot, Screenshot, StoredScreenshot
from rounddiag.wording import pluralize

_Source = tuple[RunFolder, StepFiles]


ImageOption: TypeAlias = Literal["thumbnails", "none", "full"]
_IMAGES = ("thumbnails", "none", "full")
_KEY = "ingested"  # in `meta`: the files that a step file was made from
_INGESTED = FileKind("a step file of `ingest`", lambda stream: has_entry(stream, _KEY))


@dataclass(frozen=True, kw_only=True)
class Ingestion:
    """Result of `ingest`.

    Attributes
    ----------
    folder: Where the step files are.
    written: Steps whose files were written.
    unchanged: Steps that an earlier call has written from the same files.
    failed: Files that could not be converted, with the errors.
    """

    folder: str
    written: tuple[int, ...]
    unchanged: tuple[int, ...]
    failed: Mapping[str, str]

    def __str__(self) -> str:
        counts = (
            f"{self.folder}: {pluralize(len(self.written), 'step')} written,"
            f" {len(self.unchanged):,} unchanged, {len(self.failed):,} failed"
        )
        errors = (f"failed: {file}: {error}" for file, error in self.failed.items())
        return "\n".join([counts, *errors])

    __repr__ = __str__


def ingest(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    engine: RunEngine = "local",
    images: ImageOption = "thumbnails",
    **options: Any,  # noqa: ANN401 those of `load`
) -> Ingestion:
    """Convert the files of a framework to step files, for `rounddiag.open_run`.

    It can be repeated, and killed at any time: a step that was converted from the same
    files with the same `images` and options is not converted again, and a file has its
    name only when it is complete. Two calls may run at once. A file that cannot be read
    does not stop the others; it is listed at the end with its error. So are all but one
    of the files of one step. A progress bar shows files, bytes and the time left.

    Parameters
    ----------
    paths : path-like, or sequence of path-like
        A folder, a glob, a URL, or several of them. The step is read from the batch,
        else from `step_40` in the path, else it is the last number in the file's name.
        Files of the ranks of one step are joined.
    out : path-like or str
        The folder, or URL, to write to. What another program wrote there is not
        replaced, nor are files that are read.
    engine : {"local", "ray"}
        Convert in this process, or on the workers of a Ray cluster, which read and
        write the files themselves.
    images : {"thumbnails", "none", "full"}
        Store screenshots as JPEGs of at most 768 pixels (as they are where that is
        smaller), not at all, or without loss.
    **options
        Passed to `rounddiag.load`, such as `sample_by` or `columns`.

    Returns
    -------
    Ingestion
        Prints as a list of the files that failed.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = rd.ingest("sample_data/image_window_verl.pkl", folder)
    ...     rd.open_run(folder).steps
    (1584,)
    """
    check_engine(engine)
    require_one_of(images, _IMAGES, key="images", advice="Leave it out for thumbnails.")
    target = absolute_folder(out)
    make_capture_folder(target)
    remove_stale_files(target)
    several = [paths] if isinstance(paths, str | os.PathLike) else [*paths]
    sources = [
        (folder, files)
        for folder in map(RunFolder, several)
        for files in folder.steps()
    ]
    known = _known_files(target)
    how = {"images": images, "options": _describe_options(options)}
    wanted = [(files.stamp, *how.values()) for _, files in sources]
    todo = [
        source for source, key in zip(sources, wanted, strict=True) if key not in known
    ]
    convert = partial(
        _convert,
        out=target,
        how=how,
        stamps=frozenset(files.stamp for _, files in sources),
        reads=frozenset(file.path for _, files in sources for file in files.files),
        options=options,
    )
    written: dict[int, list[_Source]] = {}
    failed: dict[str, str] = {}
    for (folder, files), result in map_items(
        convert,
        todo,
        engine=engine,
        num_bytes=lambda source: source[1].num_bytes,
        label="ingest",
    ):
        if isinstance(result, Exception):
            failed[_name(folder, files)] = str(result) or type(result).__name__
        else:
            written.setdefault(result, []).append((folder, files))
    for step, of_step in written.items():
        failed.update(_find_overwritten(target, step, of_step))
    return Ingestion(
        folder=target,
        written=tuple(sorted(written)),
        unchanged=tuple(sorted(known[key] for key in wanted if key in known)),
        failed=failed,
    )


def _name(folder: RunFolder, files: StepFiles) -> str:
    first = files.files[0].path if folder.is_local else files.files[0].name
    more = len(files.files) - 1
    return first + (f" and {pluralize(more, 'file')} of other ranks" if more else "")


def _describe_options(options: Mapping[str, Any]) -> str:
    """Return options of `load` as a text that is the same in every process."""

    def describe(value: object) -> str:
        if isinstance(value, os.PathLike):
            return str(os.fspath(value))
        kind = value if callable(value) else type(value)
        return f"{kind.__module__}.{getattr(kind, '__qualname__', '')}"

    return json.dumps(dict(sorted(options.items())), default=describe)


def _known_files(out: str) -> dict[tuple[str, ...], int]:
    """Return which files, converted how, the step files in a folder are made from.

    The values are their steps.
    """
    try:
        folder = RunFolder(out)
        steps = folder.steps()
    except LoadError:
        return {}
    known = {}
    for files in steps:
        for file in files.files:
            made_from = _made_from(folder, file.path)
            if made_from is not None:
                known[made_from] = files.step
    return known


def _made_from(folder: RunFolder, path: str) -> tuple[str, ...] | None:
    try:
        schema = pq.read_schema(path, filesystem=folder.files)
        entry = Footer.from_metadata(schema.metadata).meta[_KEY]
        return tuple(str(entry[name]) for name in ("files", "images", "options"))
    except BROKEN:  # also a LoadError, which is a ValueError
        return None


def _convert(
    source: _Source,
    *,
    out: str,
    how: Mapping[str, str],
    stamps: frozenset[str],
    reads: frozenset[str],
    options: Mapping[str, Any],
) -> int:
    folder, files = source
    batch = load_step(folder, files, **options)
    step = files.step if batch.step is None else batch.step
    owner = _owner(out, step)
    if owner is not None and owner in stamps - {files.stamp}:
        raise _shared_step(step, owner)
    if (target := f"{RunFolder(out).root}/step_{step}.parquet") in reads:
        raise refusal(target, _INGESTED, "a file that is read")
    entry = {"files": files.stamp, **how}
    batch = replace(
        batch,
        images=_images(batch, how["images"]),
        step=step,
        meta={**batch.meta, _KEY: entry},
    )
    save_in(out, f"step_{step}.parquet", batch, _INGESTED)
    for file in files.files:
        folder.forget(file)
    return step


def _find_overwritten(
    out: str, step: int, sources: Sequence[_Source]
) -> Iterator[tuple[str, str]]:
    """Yield the files of a step that others replaced, with an error.

    Two workers can both find no file of the step, and write theirs. No lock is needed,
    which object storage does not have: each file replaces the other as a whole.
    """
    owner = _owner(out, step) if len(sources) > 1 else None
    for folder, files in sources:
        if owner is not None and files.stamp != owner:
            yield _name(folder, files), str(_shared_step(step, owner))


def _owner(out: str, step: int) -> str | None:
    """Return the stamp of the files that the file of a step was made from."""
    folder = RunFolder(out)
    made_from = _made_from(folder, f"{folder.root}/step_{step}.parquet")
    return None if made_from is None else made_from[0]


def _shared_step(step: int, owner: str) -> LoadError:
    return LoadError.build(
        expected="one batch per step",
        found=f"step {step} here and in {owner.partition(':')[0]}",
        advice="Convert the files of one run at a time.",
    )


def _images(batch: Batch, images: str) -> tuple[tuple[Screenshot, ...], ...] | None:
    if images == "none" or batch.images is None:
        return None
    if images == "full":
        return batch.images
    small = [[_thumbnail(shot) for shot in shots] for shots in batch.images]
    return tuple(tuple(filter(None, shots)) for shots in small)


def _thumbnail(screenshot: Screenshot) -> EncodedScreenshot | None:
    """Return a small JPEG; None for a picture that cannot be decoded.

    A file that is smaller than its JPEG, as a PNG of few colors can be, is kept.
    """
    try:
        if isinstance(screenshot, StoredScreenshot):
            screenshot = screenshot.read()
        data = screenshot.small_jpeg()
        if isinstance(screenshot, EncodedScreenshot):
            data = min(screenshot.data, data, key=len)
        return EncodedScreenshot(
            data=data,
            round=screenshot.round,
            position=screenshot.position,
            seen_size=screenshot.seen_size or screenshot.size,
        )
    except LoadError:
        return None

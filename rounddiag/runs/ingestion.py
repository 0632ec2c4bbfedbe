"""`ingest`: the files of any framework become step files."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

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

ImageOption: TypeAlias = Literal["thumbnails", "none", "full"]
_Source: TypeAlias = tuple[RunFolder, StepFiles]
_KEY = "ingested"  # in `meta`: the files that a step file was made from, and how
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
        errors = (  # most name their file
            f"failed: {file}: {error.removeprefix(f'{file}: ')}"
            for file, error in self.failed.items()
        )
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
    advice = "Leave it out for thumbnails."
    require_one_of(images, get_args(ImageOption), key="images", advice=advice)
    target = absolute_folder(out)
    make_capture_folder(target)
    remove_stale_files(target)
    several = [paths] if isinstance(paths, str | os.PathLike) else paths
    sources = [
        (folder, files)
        for folder in map(RunFolder, several)
        for files in folder.steps()
    ]
    # What json cannot write is written as text: at worst it is converted again.
    as_text = json.dumps(options, sort_keys=True, default=str)
    how = {"images": images, "options": as_text}
    known = _known_steps(target, how)
    convert = partial(
        _convert,
        out=target,
        how=how,
        stamps=frozenset(files.stamp for _, files in sources),
        reads=frozenset(file.path for _, files in sources for file in files.files),
        options=options,
    )
    written: set[int] = set()
    converted: dict[_Source, int] = {}
    failed: dict[str, str] = {}
    for source, result in map_items(
        convert,
        [source for source in sources if source[1].stamp not in known],
        engine=engine,
        num_bytes=lambda source: source[1].num_bytes,
        label="ingest",
    ):
        if isinstance(result, Exception):
            failed[_name(source)] = str(result) or type(result).__name__
        else:
            converted[source] = result
    for source, step in converted.items():
        owner = _entry_of(RunFolder(target), step).get("files", "")
        if owner == source[1].stamp:
            written.add(step)
            continue
        error = LoadError.build(
            expected="one batch per step",
            found=f"step {step} here and in {owner.partition(':')[0]}",
            advice="Convert the files of one run at a time.",
        )
        failed[_name(source)] = str(error)
    stamps = [files.stamp for _, files in sources]
    return Ingestion(
        folder=target,
        written=tuple(sorted(written)),
        unchanged=tuple(sorted(known[stamp] for stamp in stamps if stamp in known)),
        failed=failed,
    )


def _name(source: _Source) -> str:
    folder, (first, *others) = source[0], source[1].files
    more = f" and {pluralize(len(others), 'file')} of other ranks" if others else ""
    return (first.path if folder.is_local else first.name) + more


def _known_steps(out: str, how: Mapping[str, str]) -> dict[str, int]:
    """Return the steps in a folder that were made like this, by the stamp of files."""
    folder = RunFolder(out)
    try:
        steps = folder.steps()
    except LoadError:  # no step files
        return {}
    entries = [(_entry_of(folder, step.step), step.step) for step in steps]
    return {e["files"]: step for e, step in entries if e.items() >= how.items()}


def _path(folder: RunFolder, step: int) -> str:
    return f"{folder.root}/step_{step}.parquet"


def _entry_of(folder: RunFolder, step: int) -> dict[str, str]:
    """Return of which files, and how, `ingest` made that of a step; empty if not."""
    try:
        schema = pq.read_schema(_path(folder, step), filesystem=folder.files)
        entry = Footer.from_metadata(schema.metadata).meta[_KEY]
        return {name: str(entry[name]) for name in ("files", "images", "options")}
    except BROKEN:  # also a LoadError, which is a ValueError
        return {}


def _convert(
    source: _Source,
    *,
    out: str,
    how: Mapping[str, str],
    stamps: Collection[str],
    reads: Collection[str],
    options: Mapping[str, Any],
) -> int:
    """Write the file of a step, unless it is of other files of this call."""
    folder, files = source
    batch, target = load_step(folder, files, **options), RunFolder(out)
    step = files.step if batch.step is None else batch.step
    if (path := _path(target, step)) in reads:
        raise refusal(path, _INGESTED, "a file that is read")
    owner = _entry_of(target, step).get("files")
    if owner == files.stamp or owner not in stamps:
        meta = {**batch.meta, _KEY: {**how, "files": files.stamp}}
        shots = _images(batch, how["images"])
        batch = replace(batch, images=shots, step=step, meta=meta)
        save_in(out, f"step_{step}.parquet", batch, _INGESTED)
    for file in files.files:
        folder.forget(file)
    return step


def _images(batch: Batch, images: str) -> tuple[tuple[Screenshot, ...], ...] | None:
    if images == "full" or batch.images is None:
        return batch.images
    if images == "none":
        return None
    small = (map(_thumbnail, shots) for shots in batch.images)
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

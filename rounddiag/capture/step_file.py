"""The file of a step: its batch, which samples are shown, and where it goes."""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.capture.assembling import batch_of
from rounddiag.capture.full_batch import round_statistics
from rounddiag.capture.options import is_url
from rounddiag.capture.picking import order_of
from rounddiag.capture.screenshots import small_screenshots
from rounddiag.loaders.parquet import save

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.batch import Batch
    from rounddiag.capture.options import Options
    from rounddiag.capture.snapshot import Snapshot

    Array = np.ndarray[Any, Any]

_PARTIAL = "`metrics` and `reconcile` see the saved samples only"
_LONG = 100  # characters; a longer text is kept of the samples that are shown


def save_step(snapshot: Snapshot, options: Options) -> None:
    """Write the file of a step; it has its name only when it is whole.

    Raises
    ------
    BatchError
        If a field is missing or does not fit.
    """
    batch, name = batch_to_save(snapshot, options), options.file_name(snapshot.step)
    if is_url(options.folder):
        _upload(batch, options.folder, name)
    else:
        save(batch, Path(options.folder) / name)


def batch_to_save(snapshot: Snapshot, options: Options) -> Batch:
    """Build the batch of a step's file; `meta["capture"]` says what it is a part of."""
    batch = batch_of(snapshot.parts, snapshot.step)
    order = snapshot.order or order_of(snapshot.parts, snapshot.seed)
    shown = order.pick(options.images)
    picked = shown if options.max_samples is None else order.pick(options.max_samples)
    why = np.array([picked.get(i, "") for i in range(batch.num_samples)], dtype=object)
    texts = _long_texts(batch.sample_columns, shown)
    facts: dict[str, Any] = {"num_samples": batch.num_samples}
    if texts:
        facts["texts_of_shown_samples_only"] = [*texts]
    if snapshot.parts.left_out:
        facts["left_out"] = [*snapshot.parts.left_out]
    if snapshot.num_without_room:
        facts["num_samples_without_room_for_pixels"] = snapshot.num_without_room
    is_part = options.max_samples is not None and options.max_samples < len(batch)
    if is_part:
        rounds = round_statistics(batch)
        facts.update(num_saved=len(picked), note=_PARTIAL, rounds=rounds)
    batch = replace(
        batch,
        images=small_screenshots(batch, snapshot.pictures),
        sample_columns={**batch.sample_columns, **texts, "picked": why},
        meta={**batch.meta, "capture": facts},
    )
    return batch.where(why != "") if is_part else batch


def _long_texts(
    columns: Mapping[str, Array], shown: Mapping[int, str]
) -> dict[str, Array]:
    """Return the columns that have long texts, with those of the shown samples only."""
    found = {}
    for name, values in columns.items():
        if any(isinstance(v, str) and len(v) > _LONG for v in values):
            kept = (v if sample in shown else None for sample, v in enumerate(values))
            found[name] = np.fromiter(kept, dtype=object, count=len(values))
    return found


def _upload(batch: Batch, folder: str, name: str) -> None:
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    files, root = url_to_fs(folder)
    partial = f"{root}/.{name}.{uuid.uuid4().hex}.partial"
    files.makedirs(root, exist_ok=True)
    with tempfile.TemporaryDirectory() as here:
        save(batch, Path(here) / name)
        try:
            files.put_file(str(Path(here) / name), partial)
            files.mv(partial, f"{root}/{name}")
        finally:
            if files.exists(partial):
                files.rm_file(partial)

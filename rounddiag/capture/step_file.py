"""The file of a step: built from a trainer's batch and written in our format."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.contexts import SAMPLER_PROMPTS
from rounddiag.batch.sample_sequence import SampleSequence
from rounddiag.capture.facts import installed_versions, sampling_settings
from rounddiag.capture.options import COPY, Options
from rounddiag.capture.sampling import (
    SampleOrder,
    encode_screenshots,
    order_samples,
    view_screenshots,
)
from rounddiag.capture.snapshot import Snapshot, join_parts
from rounddiag.capture.trainer_batch import TrainerBatch, read_trainer_batch
from rounddiag.capture.verdict_worker import VerdictWorker
from rounddiag.core.divergence import MEASURES
from rounddiag.core.scores import select_scores
from rounddiag.core.sums import diffs
from rounddiag.core.versions import TRAINER
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.field_batch import batch_from_fields
from rounddiag.loaders.field_reader import FieldReader
from rounddiag.loaders.output import FileKind, refusal
from rounddiag.loaders.parquet.metadata import PARTIAL_NOTE
from rounddiag.loaders.parquet.writer import BATCH_FILE, write_batch
from rounddiag.loaders.paths import is_url

_LONG_TEXT = 100  # characters; longer texts are kept for samples with screenshots only


def save_batch(
    data: Any,  # noqa: ANN401 verl's classes, which need not be installed
    path: str | os.PathLike[str],
    *,
    images: int = 8,
    step: int | None = None,
) -> None:
    """Save the batch of a training step, for `rounddiag.load`.

    Call it once both engines' log-probabilities are in the batch and before anything
    changes `response_mask`: in verl, before rollout correction. Fields are read by
    name; `pixel_values` are neither copied nor written.

    Parameters
    ----------
    data : DataProto, TensorDict or mapping of str to Tensor
        Fields under verl's names, padded or nested, on any device. Required:
        `responses`, `response_mask`, `rollout_log_probs`, `old_log_probs`. Optional:
        `prompts`, `attention_mask`, `entropys`, `rm_scores`, `uid` and others.
    path : path-like
        Where to write. An existing batch is replaced atomically.
    images : int
        Number of samples, from the first on, whose screenshots are kept as small JPEGs.
        They are rebuilt from `multi_modal_inputs`, which needs Pillow; without Pillow
        none are kept.
    step : int, optional
        The trainer's global step, where `data` does not have it.

    Raises
    ------
    BatchError
        If a field is missing or does not fit; nothing is written then.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> import torch
    >>> data = {
    ...     "responses": torch.tensor([[5, 6]]),
    ...     "response_mask": torch.tensor([[1, 1]]),
    ...     "rollout_log_probs": torch.tensor([[-1.0, -2.0]]),
    ...     "old_log_probs": torch.tensor([[-1.5, -2.0]]),
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_batch(data, f"{folder}/step_40.parquet", step=40)
    ...     rd.load(f"{folder}/step_40.parquet").step
    40
    """
    trainer_batch = read_trainer_batch(data)
    batch = build_batch(trainer_batch, step)
    inputs = trainer_batch.image_inputs[:images]
    screenshots = dict(enumerate(map(view_screenshots, inputs)))
    batch = replace(batch, images=encode_screenshots(batch, screenshots))
    write_batch(batch, path)


def build_batch(trainer_batch: TrainerBatch, step: int | None) -> Batch:
    """Build the Batch of a step."""
    info, columns = trainer_batch.info, trainer_batch.columns
    if trainer_batch.round_records is not None:
        columns = {**columns, "round_records": trainer_batch.round_records}
    try:
        # Without one of them the batch was saved too early: it is still at hand.
        FieldReader(trainer_batch.fields, trainer_batch.source).both_log_probs()
        batch = batch_from_fields(
            trainer_batch.fields,
            source=trainer_batch.source,
            columns=columns,
            info=info if step is None else {**info, "global_steps": step},
            sample_ids=trainer_batch.sample_ids,
        )
    except LoadError as error:
        raise BatchError(str(error)) from error
    if trainer_batch.rollout_ids is not None:
        batch = replace(batch, rollout_ids=trainer_batch.rollout_ids)
    return batch


def save_step(
    parts: Sequence[Snapshot], options: Options, verdicts: VerdictWorker
) -> None:
    """Write the file of a step under its final name once complete; have it judged."""
    snapshot = join_parts(parts)
    order = snapshot.order or order_samples(snapshot.batch, snapshot.seed)
    order = order.first(options.max_samples)
    whole = build_step(snapshot, options, order)
    batch = _saved_samples(whole, order)
    save_in(options.folder, options.file_name(snapshot.step), batch)
    if "current" in whole.scores:
        verdicts.add_metrics(snapshot.step, _update_metrics(whole))
    if verdicts.is_due(snapshot.step, len(parts)):
        is_whole = batch is whole and not is_url(options.folder)
        copy = None if is_whole else _temporary_copy(whole)
        verdicts.put(snapshot.step, options.path(snapshot.step), copy)


def _update_metrics(batch: Batch) -> dict[str, float]:
    diff = diffs(select_scores(batch, "current", "old")).astype(np.float64)
    diff = diff[np.isfinite(diff)]
    metrics = {"mean_abs_diff": "abs_diff", "kl": "k3", "clip_share": "clip_share"}
    return {
        f"rounddiag/update_{name}": float(MEASURES[metric].values(diff).mean())
        for name, metric in metrics.items()
        if len(diff)
    }


def build_step(snapshot: Snapshot, options: Options, order: SampleOrder) -> Batch:
    """Build the batch of a step; `meta["capture"]` says what it leaves out."""
    # The batches of verl's V1 trainer have no sampling parameters.
    info = {**sampling_settings(options.facts), **snapshot.batch.info}
    batch = build_batch(replace(snapshot.batch, info=info), snapshot.step)
    picked = order.pick(options.images)
    why = np.array([picked.get(i, "") for i in range(batch.num_samples)], dtype=object)
    texts = _long_texts(batch.sample_columns, picked)
    screenshots = {i: v for i, v in snapshot.screenshots.items() if i in picked}
    exact = {*order.pick(min(options.prove_samples, options.images))}
    facts: dict[str, Any] = {"num_samples": batch.num_samples}
    if texts:
        facts["texts_of_shown_samples_only"] = [*texts]
    if snapshot.batch.left_out:
        facts["left_out"] = [*snapshot.batch.left_out]
    if snapshot.num_without_room:
        facts["num_samples_without_room_for_pixels"] = snapshot.num_without_room
    return replace(
        batch,
        images=encode_screenshots(batch, screenshots, exact),
        sample_columns={**batch.sample_columns, **texts, "picked": why},
        round_columns=_without_known_prompts(batch, exact),
        meta={
            **batch.meta,
            **_run_entries(options),
            **_weight_entries(snapshot.weights),
            "capture": facts,
        },
    )


def _without_known_prompts(batch: Batch, samples: Collection[int]) -> dict[str, Any]:
    """Keep the prompts of some samples' rounds, where the batch does not have them."""
    columns = dict(batch.round_columns)
    prompts = columns.pop(SAMPLER_PROMPTS, None)
    if prompts is None:
        return columns
    reduced = np.full(len(prompts), None, dtype=object)
    for sample in samples:
        sequence = SampleSequence(batch, sample)
        starts = dict(enumerate(sequence.starts))
        for row in np.flatnonzero(columns["sample"] == sample).tolist():
            start = starts.get(int(columns["round"][row]))
            if start is not None and prompts[row] is not None:
                ids = np.array(list(prompts[row]), dtype=np.int64)
                if not np.array_equal(ids, sequence.ids[:start]):
                    reduced[row] = ids.tolist()
    return {**columns, SAMPLER_PROMPTS: reduced} if any(reduced) else columns


def _saved_samples(batch: Batch, order: SampleOrder) -> Batch:
    samples = order.samples
    if len(samples) == len(batch):
        return batch
    facts = {"num_saved": len(samples), "note": PARTIAL_NOTE}
    saved = batch.where(np.isin(np.arange(len(batch)), samples))
    meta = {**saved.meta, "capture": {**batch.meta["capture"], **facts}}
    return replace(saved, meta=meta)


def _temporary_copy(batch: Batch) -> str:
    handle, path = tempfile.mkstemp(prefix=COPY, suffix=".parquet")
    os.close(handle)
    try:
        write_batch(replace(batch, images=None), path)
    except BaseException:
        Path(path).unlink()
        raise
    return path


def _run_entries(options: Options) -> dict[str, Any]:
    tokenizer = {"tokenizer": options.tokenizer} if options.tokenizer else {}
    facts = {"facts": options.facts} if options.facts else {}
    return {**facts, "versions": installed_versions(), **tokenizer}


def _weight_entries(weights: Mapping[str, Any]) -> dict[str, Any]:
    if not any(weights.values()):
        return {}
    versions = [event["version"] for event in weights["sent"]]
    return {"weights": weights, **({TRAINER: versions[-1]} if versions else {})}


def _long_texts(
    columns: Mapping[str, Array], samples: Mapping[int, str]
) -> dict[str, Array]:
    texts = {}
    for name, values in columns.items():
        if any(isinstance(v, str) and len(v) > _LONG_TEXT for v in values):
            reduced = (
                v if sample in samples else None for sample, v in enumerate(values)
            )
            texts[name] = np.fromiter(reduced, dtype=object, count=len(values))
    return texts


def save_in(folder: str, name: str, batch: Batch, kind: FileKind = BATCH_FILE) -> None:
    """Write a batch to a folder or URL; it gets its name only when it is complete."""
    if not is_url(folder):
        write_batch(batch, Path(folder) / name, kind)
        return
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    files, root = url_to_fs(folder)
    partial = f"{root}/.{name}.{uuid.uuid4().hex}.partial"
    files.makedirs(root, exist_ok=True)
    target = f"{root}/{name}"
    if files.exists(target):
        with files.open(target, "rb") as stream:
            if not kind.has(stream):
                raise refusal(target, kind, "another file")
    with tempfile.TemporaryDirectory() as local:
        write_batch(batch, Path(local) / name)
        try:
            files.put_file(str(Path(local) / name), partial)
            files.mv(partial, target)
        finally:
            if files.exists(partial):
                files.rm_file(partial)

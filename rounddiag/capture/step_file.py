"""What a trainer holds in memory -> our file."""

from __future__ import annotations

import tempfile
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.capture.options import is_url
from rounddiag.capture.rounds import with_records
from rounddiag.capture.sampling import order_of, pictures_of, small_screenshots
from rounddiag.capture.trainer_batch import parts_of
from rounddiag.core import take_runs
from rounddiag.core.columns import aggregates, token_column
from rounddiag.core.sums import measure
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.fields.mapping import batch_from_fields
from rounddiag.loaders.parquet import save

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.capture.options import Options
    from rounddiag.capture.trainer_batch import Parts, Snapshot
    from rounddiag.core.sums import Totals


def batch_of(parts: Parts, step: int | None) -> Batch:
    """Build the batch of a step.

    Raises
    ------
    BatchError
        If a field is missing or does not fit.
    """
    info = parts.info if step is None else {**parts.info, "global_steps": step}
    try:
        batch = batch_from_fields(
            parts.fields,
            source=parts.source,
            columns=parts.columns,
            info=info,
            sample_ids=parts.sample_ids,
        )
    except LoadError as error:
        raise BatchError(str(error)) from error
    if parts.rollout_ids is not None:
        batch = replace(batch, rollout_ids=parts.rollout_ids)
    if parts.round_records is None:
        return batch
    return with_records(batch, parts.round_records)


def save_batch(
    data: Any,  # noqa: ANN401 verl's classes, which need not be installed
    path: str | os.PathLike[str],
    *,
    images: int = 8,
    step: int | None = None,
) -> None:
    """Save the batch of a training step, for `rounddiag.load`.

    Call it when both engines' log-probabilities are there and before anything changes
    `response_mask`: in verl, before its rollout correction. Fields are taken by name,
    so the pixels of a batch are neither copied nor written.

    Parameters
    ----------
    data : DataProto, TensorDict or mapping of str to Tensor
        Fields under verl's names: `responses`, `response_mask`, `rollout_log_probs`,
        `old_log_probs`, and of `prompts`, `attention_mask`, `entropys`, `rm_scores`,
        `uid` and others what there is. Padded or nested, on any device.
    path : path-like
        Where to write. A file that is there is replaced only by a whole one.
    images : int
        From how many samples, the first ones, the screenshots are kept, made small.
        They are rebuilt from `multi_modal_inputs` with Pillow; without Pillow none are.
    step : int, optional
        The trainer's global step, where `data` does not say it.

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
    parts = parts_of(data)
    batch = batch_of(parts, step)
    pictures = dict(enumerate(map(pictures_of, parts.inputs[:images])))
    save(replace(batch, images=small_screenshots(batch, pictures)), path)


_PERCENT = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}


def round_statistics(batch: Batch) -> list[dict[str, Any]]:
    """Summarise each round over all samples, in plain numbers.

    Parameters
    ----------
    batch : Batch
        On the CPU.

    Returns
    -------
    list of dict
        One entry a round: the columns of `schema.SUMMARY` that no other ones tell,
        except the interval, and what that is made from: `cluster_abs_diff` and
        `cluster_tokens`, the sum of |diff| and the number of finite tokens of each
        group (of each sample without groups).
    """
    diff = np.empty(batch.num_tokens, dtype=np.float32)
    totals = measure(batch, out=diff)
    probs = token_column(batch, diff, "prob_diff")
    index = batch.rounds.round.numpy()
    means = _means(batch, totals, index)
    return [
        {
            "round": number,
            "num_samples": int(mine.sum()),
            **{name: values[number].item() for name, values in means.items()},
            **_of_tokens(batch, diff, probs, mine),
            **_clusters(batch, totals, mine),
        }
        for number, mine in enumerate(
            index == np.arange(index.max(initial=-1) + 1)[:, None]
        )
    ]


def _means(batch: Batch, totals: Totals, index: Array) -> dict[str, Array]:
    num_tokens = np.bincount(index, batch.rounds.num_tokens.numpy()).astype(np.int64)
    found = aggregates(totals.grouped(index, len(num_tokens)), num_tokens)
    return {**found, "max": found["max_abs_diff"]}


def _of_tokens(
    batch: Batch, diff: Array, probs: Array, mine: Array
) -> dict[str, float]:
    """Summarise what the sums of rounds do not tell."""
    num = batch.rounds.num_tokens.numpy()
    place = (np.cumsum(num) - num)[mine], num[mine]
    values = take_runs(diff, *place)
    finite = np.isfinite(values)
    if not finite.any():
        return dict.fromkeys([*_PERCENT, "share_zero", "prob_diff"], float("nan"))
    size = np.abs(values[finite])
    found = np.percentile(size.astype(np.float64), [*_PERCENT.values()]).tolist()
    mean = take_runs(probs, *place)[finite].mean(dtype=np.float64)
    return {
        **dict(zip(_PERCENT, found, strict=True)),
        "share_zero": float((size == 0).mean()),
        "prob_diff": float(mean),
    }


def _clusters(batch: Batch, totals: Totals, mine: Array) -> dict[str, list[float]]:
    names = np.asarray(batch.group_ids or range(batch.num_samples))
    sample = batch.rounds.sample.numpy()[mine]
    clusters, cluster = np.unique(names, return_inverse=True)
    num_finite = batch.rounds.num_tokens.numpy() - totals.num_nonfinite
    sums = {"cluster_abs_diff": totals.abs_diff, "cluster_tokens": num_finite}
    return {
        name: np.bincount(cluster[sample], values[mine], len(clusters)).tolist()
        for name, values in sums.items()
    }


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

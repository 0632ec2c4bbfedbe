"""Recorder: saves some steps of a training in the background, one file each."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rounddiag.capture.options import Options, absolute_folder, remove_stale_files
from rounddiag.capture.snapshot import Snapshot, merge_late_fields, take_snapshot
from rounddiag.capture.step_file import save_step
from rounddiag.capture.trainer_batch import (
    LATE_QUEUE_FIELDS,
    QUEUE_FIELDS,
    fetch_queued_batch,
    fetch_queued_image_inputs,
    read_trainer_batch,
)
from rounddiag.capture.writer import Writer

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from torch import Tensor
    from typing_extensions import Self

    from rounddiag.capture.trainer_batch import TrainerBatch


class Recorder:
    """Saves every n-th step of a training for `rounddiag.load`, without delaying it.

    `step` copies the per-token columns of all samples to host memory (a few ms for 128
    responses of 8192 positions) and keeps no reference to the batch. A background
    thread writes the file, 10 bytes per position or 13 with entropy. The file gets its
    name, such as `step_40.parquet`, only when it is complete; `finish` replaces it by
    one with more columns. The copies are freed by the next call of `step`.

    Errors are never raised into the trainer: the first of each type is logged to
    `rounddiag.capture`, and all are counted.

    Screenshots, and texts of more than 100 characters, are kept for a few samples only:
    half of them drawn at random, half those with the largest mean |diff|. The sample
    column `picked` is "random", "worst" or "".

    Partial files older than an hour, which a killed training left in the folder, are
    removed at the start.

    Use one Recorder per folder, or give each process its `rank`. A pickled Recorder, as
    sent to a Ray actor, arrives as a new one with the same options; a forked child
    starts a thread of its own.

    Parameters
    ----------
    folder : path-like or str
        Where to write: a folder, or a URL such as `s3://bucket/run`, which needs
        `fsspec`.
    every : int
        Steps that are multiples of it are recorded: 0, 10, 20 and so on.
    images : int
        Number of samples whose screenshots are kept, as small JPEGs. Their pixels are
        copied too, up to 1 GB (about half a second); needs Pillow.
    max_samples : int, optional
        Largest number of samples in a file, half of them random and half the worst. The
        file of a larger batch also stores the per-round summary of all samples, which
        `rounddiag.round_summary` returns; `rounddiag.metrics` and
        `rounddiag.reconcile` see the saved samples only.
    seed : int
        Seed of the random samples, together with the step.
    rank : int, optional
        Rank of this process: files are named `step_40_rank_3.parquet`.

    Raises
    ------
    BatchError
        If an option is out of range, or `fsspec` is missing for a URL. Later calls
        raise nothing.

    Examples
    --------
    >>> import tempfile
    >>> import rounddiag as rd
    >>> import torch
    >>> batch = {
    ...     "responses": torch.tensor([[5, 6]]),
    ...     "response_mask": torch.tensor([[1, 1]]),
    ...     "rollout_log_probs": torch.tensor([[-1.0, -2.0]]),
    ...     "old_log_probs": torch.tensor([[-1.5, -2.0]]),
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Recorder(folder) as recorder:
    ...         for step in range(12):
    ...             recorder.step(step, batch)
    ...     rd.load(f"{folder}/step_10.parquet").step
    10
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int = 10,
        images: int = 8,
        max_samples: int | None = None,
        seed: int = 0,
        rank: int | None = None,
    ) -> None:
        self.__setstate__(
            Options(
                folder=absolute_folder(folder),
                every=every,
                images=images,
                max_samples=max_samples,
                seed=seed,
                rank=rank,
            )
        )

    def __getstate__(self) -> Options:
        return self._options

    def __setstate__(self, options: Options) -> None:
        self._options = options
        remove_stale_files(options.folder)
        self._writer = Writer()
        self._last: Snapshot | None = None

    @property
    def dropped(self) -> int:
        """Number of steps not saved, or not finished, because the queue was full."""
        return self._writer.dropped

    @property
    def errors(self) -> int:
        """Number of errors so far."""
        return self._writer.errors

    def step(self, step: int, batch: Any, *, entropy: Tensor | None = None) -> None:  # noqa: ANN401 verl's classes, which need not be installed
        """Record a step: after the old log-probabilities, before any rejection.

        A second call for a step replaces the first.

        Parameters
        ----------
        step : int
            The trainer's global step.
        batch : DataProto, TensorDict or mapping of str to Tensor
            As in `save_batch`. Position ids are not kept.
        entropy : Tensor, optional
            Per position, in nats, where the batch does not have it.
        """
        self._last = None
        with self._writer.guard(f"step {step}"):
            if self._options.is_due(step):
                more = {} if entropy is None else {"entropy": entropy}
                fields = read_trainer_batch(batch, **more)
                inputs = fields.image_inputs
                read = partial(_select, inputs) if len(inputs) else None
                self._put(take_snapshot(step, fields, self._options, read))

    def step_keys(self, step: int, batch: Any, tq: Any) -> None:  # noqa: ANN401 as above
        """Record a step of verl's V1 trainer, whose rows are in a TransferQueue.

        Padding rows are left out. Pixels are fetched only for the samples whose
        screenshots are kept.

        Parameters
        ----------
        step : int
            The trainer's global step.
        batch : KVBatchMeta
            After `tq.kv_batch_put` of `old_log_probs`.
        tq : module
            `transfer_queue`, as the trainer imported it.
        """
        self._last = None
        with self._writer.guard(f"step {step}"):
            if self._options.is_due(step):
                rows = fetch_queued_batch(batch, tq, QUEUE_FIELDS)
                read = partial(fetch_queued_image_inputs, batch, tq)
                self._put(take_snapshot(step, rows, self._options, read))

    def finish(self, step: int, batch: Any) -> None:  # noqa: ANN401 as above
        """Add the columns that exist only later to the step that was just recorded.

        The new file also has the advantages, rewards, reference log-probabilities, and
        the mask after rejection: the current `response_mask`, saved as `loss_mask`.
        `rollout_is_weights` become the score `rollout_is`, the log-probability whose
        difference to the sampler's is the log of the weight:
        `token_frame(batch, a="rollout_is")`. Nothing happens for any other step.

        Parameters
        ----------
        step : int
            The step of the last call of `step`.
        batch : DataProto, TensorDict or mapping of str to Tensor
            The same samples in the same order.
        """
        with self._writer.guard(f"step {step} (finish)"):
            if (last := self._last_if(step)) is not None:
                self._finish(last, read_trainer_batch(batch))

    def finish_keys(self, step: int, batch: Any, tq: Any) -> None:  # noqa: ANN401 as above
        """Do the same as `finish`, for rows in a TransferQueue.

        Parameters
        ----------
        step : int
            The step of the last call of `step_keys`.
        batch : KVBatchMeta
            After `tq.kv_batch_put` of `advantages`, in the order of `step_keys`.
        tq : module
            `transfer_queue`.
        """
        with self._writer.guard(f"step {step} (finish)"):
            if (last := self._last_if(step)) is not None:
                self._finish(last, fetch_queued_batch(batch, tq, LATE_QUEUE_FIELDS))

    def close(self) -> None:
        """Wait until all files are written, 30 s at most.

        It also runs when the process ends. The recorder can be used again afterwards.
        """
        self._last = None
        self._writer.close()

    def _last_if(self, step: int) -> Snapshot | None:
        is_last = self._last is not None and self._last.step == step
        return self._last if is_last else None

    def _finish(self, last: Snapshot, late: TrainerBatch) -> None:
        self._put(replace(last, batch=merge_late_fields(last.batch, late)))

    def _put(self, snapshot: Snapshot) -> None:
        self._last = snapshot
        job = partial(save_step, snapshot, self._options)
        self._writer.put(f"step {snapshot.step}", job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _select(inputs: Sequence[Any], samples: Sequence[int]) -> list[Any]:
    return [inputs[sample] for sample in samples]

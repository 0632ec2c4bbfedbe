"""Recorder: some steps of a training, each a file, written in the background."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rounddiag.capture.options import Options, absolute, remove_leftovers
from rounddiag.capture.step_file import save_step
from rounddiag.capture.trainer_batch import (
    FIELDS,
    LATER,
    Snapshot,
    finished,
    parts_of,
    queued_inputs,
    queued_parts,
    take,
)
from rounddiag.capture.writer import Writer

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from torch import Tensor
    from typing_extensions import Self

    from rounddiag.capture.trainer_batch import Parts


class Recorder:
    """Saves every n-th step of a training for `rounddiag.load`, without delaying it.

    A call copies the columns of tokens of all samples to host memory (a few ms for 128
    responses of 8192 positions) and keeps nothing of the batch. A thread writes the
    file, 10 bytes a position or 13 with entropy; it has its name, `step_40.parquet`,
    only when it is whole. Errors never reach the trainer: the first of each kind is
    logged to `rounddiag.capture`, and all are counted. The copies stay until the next
    call, for `finish`; a file is whole without it.

    Screenshots are copied of a few samples only, half of them drawn and half those with
    the largest mean |diff|; so are texts longer than 100 characters. The column
    `picked` of the samples says "random", "worst" or "".

    What a killed training left half written, more than an hour ago, is removed from the
    folder at the start.

    One process records. Several can where each gives its `rank`. A recorder that is
    pickled, as into a Ray actor, arrives as a new one with the same options; a forked
    child writes with a thread of its own.

    Parameters
    ----------
    folder : path-like or str
        Where the files go: a folder, or a URL such as `s3://bucket/run` with `fsspec`.
    every : int
        Steps that are multiples of it are recorded: 0, 10, 20 and so on.
    images : int
        How many samples are shown with screenshots, made small. Their pixels are
        copied too, up to 1 GB (about half a second); Pillow is needed.
    max_samples : int, optional
        How many samples a file may have, half of them drawn and half the worst. Of a
        larger batch the file keeps what each round of all samples came to, which
        `rounddiag.round_summary` then gives; `rounddiag.metrics` and
        `rounddiag.reconcile` see the saved samples only, the worst among them.
    seed : int
        With the step, what the random part is drawn from.
    rank : int, optional
        Which of several processes this is: the files are `step_40_rank_3.parquet`.

    Raises
    ------
    BatchError
        If an option has no meaning, or `fsspec` is missing for a URL. Nothing raises
        later.

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
                folder=absolute(folder),
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
        remove_leftovers(options.folder)
        self._writer = Writer()
        self._last: Snapshot | None = None

    @property
    def dropped(self) -> int:
        """Number of steps not saved, or not finished, as two others were waiting."""
        return self._writer.dropped

    @property
    def errors(self) -> int:
        """Number of errors so far."""
        return self._writer.errors

    def step(self, step: int, batch: Any, *, entropy: Tensor | None = None) -> None:  # noqa: ANN401 verl's classes, which need not be installed
        """Record a step: after the old log-probabilities, before any rejection.

        A step that was recorded before is replaced.

        Parameters
        ----------
        step : int
            The trainer's global step.
        batch : DataProto, TensorDict or mapping of str to Tensor
            As for `save_batch`. Position ids are not kept.
        entropy : Tensor, optional
            Per position, in nats, where the batch does not have it.
        """
        self._last = None
        with self._writer.guarded(f"step {step}"):
            if self._options.is_due(step):
                more = {} if entropy is None else {"entropy": entropy}
                parts = parts_of(batch, **more)
                look_up = partial(_rows, parts.inputs) if len(parts.inputs) else None
                self._put(take(step, parts, self._options, look_up))

    def step_keys(self, step: int, batch: Any, tq: Any) -> None:  # noqa: ANN401 as above
        """Record a step of verl's V1 trainer, whose rows are in a TransferQueue.

        Rows that fill the batch up are left out, and only the pixels of the samples
        that are shown leave the queue.

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
        with self._writer.guarded(f"step {step}"):
            if self._options.is_due(step):
                parts = queued_parts(batch, tq, FIELDS)
                look_up = partial(queued_inputs, batch, tq)
                self._put(take(step, parts, self._options, look_up))

    def finish(self, step: int, batch: Any) -> None:  # noqa: ANN401 as above
        """Add what came after the log-probabilities to a step that was just recorded.

        The step's file is replaced by one that has also the advantages, the mask after
        rejection (`loss_mask`, from the `response_mask` of now), reference
        log-probabilities and rewards; and, from `rollout_is_weights`, the score
        `rollout_is`: the log-probability that, minus the sampler's, is the logarithm of
        the weight (`token_frame(batch, a="rollout_is")`). Other steps are left alone.

        Parameters
        ----------
        step : int
            As given to `step` last.
        batch : DataProto, TensorDict or mapping of str to Tensor
            The same samples in the same order.
        """
        with self._writer.guarded(f"the end of step {step}"):
            if (last := self._kept(step)) is not None:
                self._finish(last, parts_of(batch))

    def finish_keys(self, step: int, batch: Any, tq: Any) -> None:  # noqa: ANN401 as above
        """Do what `finish` does, for rows in a TransferQueue.

        Parameters
        ----------
        step : int
            As given to `step_keys` last.
        batch : KVBatchMeta
            After `tq.kv_batch_put` of `advantages`, in the order it had then.
        tq : module
            `transfer_queue`.
        """
        with self._writer.guarded(f"the end of step {step}"):
            if (last := self._kept(step)) is not None:
                self._finish(last, queued_parts(batch, tq, LATER))

    def close(self) -> None:
        """Wait until everything is written, 30 s at most.

        The end of the process does it too. Later steps are recorded as before.
        """
        self._last = None
        self._writer.close()

    def _kept(self, step: int) -> Snapshot | None:
        is_last = self._last is not None and self._last.step == step
        return self._last if is_last else None

    def _finish(self, last: Snapshot, later: Parts) -> None:
        self._put(replace(last, parts=finished(last.parts, later)))

    def _put(self, snapshot: Snapshot) -> None:
        self._last = snapshot
        save_it = partial(save_step, snapshot, self._options)
        self._writer.put(f"step {snapshot.step}", save_it)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _rows(inputs: Sequence[Any], samples: Sequence[int]) -> list[Any]:
    return [inputs[sample] for sample in samples]

"""Recorder: saves some steps of a training in the background, one file each."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import finalize

from torch import Tensor

from rounddiag.capture.facts import why_nothing_to_record
from rounddiag.capture.options import Options, make_capture_folder, remove_stale_files
from rounddiag.capture.snapshot import (
    Snapshot,
    merge_late_fields,
    same_samples,
    take_snapshot,
)
from rounddiag.capture.step_file import save_step
from rounddiag.capture.trainer_batch import (
    LATE_QUEUE_FIELDS,
    QUEUE_FIELDS,
    TrainerBatch,
    fetch_queued_batch,
    fetch_queued_image_inputs,
    read_trainer_batch,
)
from rounddiag.capture.verdict_worker import VerdictWorker
from rounddiag.capture.weights import (
    NamedTensors,
    WeightLog,
    add_digest,
    describe_adapter,
    digest_weights,
)
from rounddiag.capture.writer import CLOSE_TIMEOUT, ProcessLock, Writer, logger
from rounddiag.errors import BatchError
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from typing_extensions import Self

    from rounddiag.findings import Diagnosis


class Recorder:
    """Saves every n-th step of a training, and judges it, without delaying the trainer.

    `step` copies the per-token columns of all samples to host memory (a few ms for 128
    responses of 8192 positions) and keeps no reference to the batch. A background
    thread writes the file, 10 bytes per position or 13 with entropy. The file gets its
    name, such as `step_40.parquet`, only when it is complete; `finish` replaces it by
    one with more columns. Several batches of one step become parts of one file, with
    the number of the batch in the sample column `step_part`. The copies are freed by
    the next step.

    Errors are never raised into the trainer: the first of each type is logged to
    `rounddiag.capture`, and all are counted. An option that cannot be used is such an
    error, and its default is used; without a folder, each step is one. If no step was
    recorded, a last line says why when the Recorder or the process ends.

    A child process reads a step's file and judges it as `rounddiag.diagnose` does. When
    the verdict becomes worse or better, one line with the verdict, its sentence and the
    file is logged as a warning to `rounddiag.capture`; `metrics` returns the numbers.

    Screenshots, and texts of more than 100 characters, are kept for a few samples only:
    half of them drawn at random, half those with the largest mean |diff|. The sample
    column `picked` is "random", "worst" or "". Where rows are steps and a column names
    their trajectory, such as verl-agent's `traj_uid`, trajectories are picked whole, so
    that there can be more samples.

    Partial files older than an hour, which a killed training left in the folder, are
    removed at the start.

    Use one Recorder per folder, or give each process its `rank`. A pickled Recorder, as
    sent to a Ray actor, arrives as a new one with the same options; a forked child
    starts a thread of its own. Several threads may record steps; one waits for the
    other.

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
    prove_samples : int
        Number of these samples whose screenshots are kept as the model saw them, as
        PNG, and the prompts of their rounds: `rounddiag.prove` uses both. Also name in
        `facts` the weights that a step samples with, as
        `{"checkpoint": "runs/7/{step}"}`, and the processor's limits. 0 keeps small
        JPEGs only.
    max_samples : int, optional
        Largest number of samples in a file, drawn at random from a larger batch, in
        whole trajectories and at least one. What is computed of the file is of its
        samples; the verdict is of all.
    seed : int
        Seed of the random samples, together with the step.
    rank : int, optional
        Rank of this process: files are named `step_40_rank_3.parquet`.
    facts : mapping of str to value, optional
        Facts of the run that JSON can represent: engines, dtypes, quantization,
        parallel layout. Every file has them as `batch.meta["facts"]`, and the versions
        of the installed engines as `batch.meta["versions"]`.
        Sampling parameters under "sampling" count where the batch does not have them.
        `facts_from_verl` reads them from verl's configuration.
    tokenizer : path-like, str or tokenizer, optional
        Every file has its path or name as `batch.meta["tokenizer"]`.
    diagnose : bool, optional
        Whether recorded steps are judged. By default, those that cost at most 1 % of
        the machine's processor time, so none of a training of very short steps. Of
        several ranks, only rank 0 judges.
    on_verdict : callable, optional
        Called when the verdict becomes worse or better, with the Diagnosis and the path
        of the step's file, in a thread of its own. Its exceptions are logged and
        counted.

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

    def __init__(  # noqa: PLR0913 options, by keyword
        self,
        folder: str | os.PathLike[str],
        *,
        every: int = 10,
        images: int = 8,
        prove_samples: int = 4,
        max_samples: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        facts: Mapping[str, Any] | None = None,
        tokenizer: Any = None,  # noqa: ANN401 transformers need not be installed
        diagnose: bool | None = None,
        on_verdict: Callable[[Diagnosis, str], object] | None = None,
    ) -> None:
        writer = Writer()
        options = Options.checked(
            writer,
            folder=folder,
            every=every,
            images=images,
            prove_samples=prove_samples,
            max_samples=max_samples,
            seed=seed,
            rank=rank,
            facts={} if facts is None else facts,
            tokenizer=tokenizer,
            diagnose=diagnose,
            on_verdict=on_verdict,
        )
        self._begin_with(options, writer)

    def __getstate__(self) -> Options:
        self._outcome.is_sent = True
        return self._options

    def __setstate__(self, options: Options) -> None:
        self._begin_with(options, Writer())

    def _begin_with(self, options: Options, writer: Writer) -> None:
        self._options = options
        self._writer = writer
        self._verdicts = VerdictWorker(options)
        # Not a method: a recorder that nobody holds any more can be deleted.
        self._end = partial(_end, self._writer, self._verdicts)
        self._weights = WeightLog(options.folder)
        self._lock = ProcessLock()
        self._process: int | None = None
        self._parts: list[Snapshot] = []
        self._left: dict[int, int] = {}  # earlier steps, and their numbers of parts
        self._outcome = Outcome(options=options, writer=self._writer)
        with writer.guard("the Recorder", done="set up"):
            remove_stale_files(options.folder)
            self._outcome.warn_early()
        writer.first_error = ""  # from here on, of steps
        finalize(self, self._outcome.report)

    @property
    def dropped(self) -> int:
        """Number of steps not saved, or not finished, because the queue was full."""
        return self._writer.dropped

    @property
    def errors(self) -> int:
        """Number of errors so far."""
        return self._writer.errors + self._verdicts.errors

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the step that was judged last, for a trainer's logger.

        Each step is returned once, some seconds after it was recorded: {} otherwise.
        Log them with those of the current step; `rounddiag/step` says which step they
        describe.

        Returns
        -------
        dict of str to float
            As far as they are defined: `rounddiag/severity` (0 identical or healthy, 1
            noisy, 2 stale, 3 suspicious, 4 broken), `rounddiag/mean_abs_diff` in nats,
            `rounddiag/share_beyond_2x` (importance ratios below 1/2 or above 2),
            `rounddiag/share_equal` (tokens whose log-probabilities are bitwise equal),
            `rounddiag/first_unequal` (lowest position of a token that is not),
            `rounddiag/onset_round`, `rounddiag/seconds` that the verdict took,
            `rounddiag/step`, and verl's `per_round/round_0_abs_diff_mean` and so on.
            Where `finish` was given `current_log_probs`, of the policy after the
            updates against that before: `rounddiag/update_mean_abs_diff`,
            `rounddiag/update_kl` (k3, in nats) and `rounddiag/update_clip_share`
            (importance ratios outside 0.8 to 1.2).
        """
        return self._verdicts.take_metrics()

    def step(self, step: int, batch: Any, *, entropy: Tensor | None = None) -> None:  # noqa: ANN401 verl's classes, which need not be installed
        """Record a step: after the old log-probabilities, before any rejection.

        Another call for the same step adds a part, or replaces the part with the same
        responses.

        Parameters
        ----------
        step : int
            The trainer's global step.
        batch : DataProto, TensorDict or mapping of str to Tensor
            As in `save_batch`. Position ids are not kept.
        entropy : Tensor, optional
            Per position, in nats, where the batch does not have it.
        """
        with self._writer.guard("step", step), self._lock:
            if self._begin(step):
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
        with self._writer.guard("step", step), self._lock:
            if self._begin(step):
                rows = fetch_queued_batch(batch, tq, QUEUE_FIELDS)
                read = partial(fetch_queued_image_inputs, batch, tq)
                self._put(take_snapshot(step, rows, self._options, read))

    def finish(self, step: int, batch: Any) -> None:  # noqa: ANN401 as above
        """Add the columns that exist only later to the step that was just recorded.

        The new file also has the advantages, rewards, reference log-probabilities, and
        the mask after rejection: the current `response_mask`, saved as `loss_mask`.
        `rollout_is_weights` become the score `rollout_is`, the log-probability whose
        difference to the sampler's is the log of the weight:
        `token_frame(batch, a="rollout_is")`. `current_log_probs`, of the policy after
        the updates, become the score `current`: `diagnose(batch, a="current", b="old")`
        judges the drift within the step. Nothing happens for a step that was not
        recorded.

        Parameters
        ----------
        step : int
            The step of the last call of `step`.
        batch : DataProto, TensorDict or mapping of str to Tensor
            The same samples in the same order.
        """
        with self._writer.guard("step", step, "(finish)"), self._lock:
            if self._can_finish(step):
                self._finish(read_trainer_batch(batch))

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
        with self._writer.guard("step", step, "(finish)"), self._lock:
            if self._can_finish(step):
                self._finish(fetch_queued_batch(batch, tq, LATE_QUEUE_FIELDS))

    def weights_sent(self, named_tensors: NamedTensors, version: int) -> NamedTensors:
        """Note which weights the trainer sends to the sampler.

        Every later step file has digests of a few tensors, as `digest_weights` makes
        them: `rounddiag.diagnose` says whether they arrived, and whether the trainer's
        weights change at all. Any process can call it, with a Recorder of the same
        folder; nothing else is written to disk.

        Parameters
        ----------
        named_tensors : mapping of str to Tensor, or pairs of these
            Whole tensors as they are sent: of an adapter its own, or the merged ones.
        version : int
            The trainer's step whose update made them, counted as the weight versions of
            tokens are. Several calls of one version, as one per bucket, are one.

        Returns
        -------
        mapping, or iterable of pairs
            To be sent: the same object, or what yields the tensors of an iterator.

        Examples
        --------
        >>> import tempfile
        >>> import torch
        >>> weights = {"norm.weight": torch.ones(4)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     recorder = Recorder(folder, every=1)
        ...     sent = recorder.weights_sent(weights, version=12)
        >>> sent is weights
        True
        """
        return self._note_weights("sent", named_tensors, version, None)

    def weights_received(
        self,
        named_tensors: NamedTensors,
        version: int | None = None,
        *,
        worker: int | str = 0,
        adapter: Mapping[str, Any] | None = None,
    ) -> NamedTensors:
        """Note which weights a worker of the sampler received.

        Parameters
        ----------
        named_tensors : mapping or iterable
            Under the names of the sender; or what `digest_weights` returned there.
        version : int, optional
            The version that the worker was to load, where it knows.
        worker : int or str
            Which of the sampler's processes received them.
        adapter : mapping, optional
            Of a LoRA that the sampler loads itself: its `name`, `id` and `path` there.
            They are kept with a digest of its tensors, and whether it has parts of the
            vision tower.

        Returns
        -------
        mapping, or iterable of pairs
            As `weights_sent`.
        """
        return self._note_weights("received", named_tensors, version, worker, adapter)

    def _note_weights(
        self,
        kind: str,
        tensors: NamedTensors,
        version: int | None,
        worker: int | str | None,
        adapter: Mapping[str, Any] | None = None,
    ) -> NamedTensors:
        self._outcome.is_sent = True  # another process may record the steps
        if isinstance(tensors, Iterator):
            return self._note_each(kind, tensors, version, worker, adapter)
        with self._writer.guard("the weights of step", version), self._lock:
            names = (
                [*tensors] if isinstance(tensors, Mapping) else [n for n, _ in tensors]
            )
            known = adapter and describe_adapter(adapter, names)
            self._weights.add(kind, digest_weights(tensors), version, worker, known)
        return tensors

    def _note_each(
        self,
        kind: str,
        tensors: Iterator[Any],
        version: int | None,
        worker: int | str | None,
        adapter: Mapping[str, Any] | None,
    ) -> Iterator[Any]:
        digests: dict[str, Any] = {}
        names = []
        for name, tensor in tensors:
            names.append(name)
            with self._writer.guard("the weights of step", version):
                add_digest(digests, name, tensor)
            yield name, tensor
        with self._writer.guard("the weights of step", version), self._lock:
            known = adapter and describe_adapter(adapter, names)
            self._weights.add(kind, digests, version, worker, known)

    def close(self) -> None:
        """Wait until all files are written and judged, 30 s at most.

        It also runs when the process ends. The recorder can be used again afterwards.
        """
        with self._lock:
            self._parts, self._left = [], {}
            self._process = None
            atexit.unregister(self._end)
        self._end()

    def _begin(self, step: int) -> bool:
        """Free the copies of another step; return whether this one is recorded."""
        self._outcome.num_calls += 1
        if self._parts and not self._holds(step):
            self._left[self._parts[0].step] = len(self._parts)
            self._parts = []
        is_due = self._options.is_due(step)
        self._outcome.num_due += is_due
        return is_due

    def _holds(self, step: int) -> bool:
        return bool(self._parts) and self._parts[0].step == step

    def _can_finish(self, step: int) -> bool:
        is_held = self._holds(step)
        if self._parts and not is_held and step in self._left:
            raise BatchError.build(
                key="step",
                expected="the step that was recorded last",
                found=f"{step}, whose copies are freed",
                advice="Finish a step before the next one is recorded.",
            )
        return is_held

    def _put(self, part: Snapshot) -> None:
        with self._writer.guard("the weights of step", part.step):
            part = replace(part, weights=self._weights.events())
        number = self._part_like(part.batch)
        if not self._parts and part.step in self._left:
            self._warn_replaced(part.step, self._left.pop(part.step))
        if number is None:
            self._write([*self._parts, part])
        else:
            self._replace(number, part)

    def _warn_replaced(self, step: int, num_parts: int) -> None:
        error = BatchError.build(
            key="step",
            expected="all batches of a step before those of another one",
            found=f"step {step} again, which replaces its file of"
            f" {pluralize(num_parts, 'part')}",
            advice="Give each thread its own steps, or a Recorder of its own `rank`.",
        )
        self._writer.log_error(("step", step), error, "kept")

    def _finish(self, late: TrainerBatch) -> None:
        number = (self._part_like(late) or 0) if len(self._parts) > 1 else 0
        part = self._parts[number]
        merged = merge_late_fields(part.batch, late)
        self._replace(number, replace(part, batch=merged))

    def _part_like(self, batch: TrainerBatch) -> int | None:
        pairs = enumerate(self._parts)
        return next((i for i, p in pairs if same_samples(p.batch, batch)), None)

    def _replace(self, number: int, part: Snapshot) -> None:
        self._write([*self._parts[:number], part, *self._parts[number + 1 :]])

    def _write(self, parts: list[Snapshot]) -> None:
        self._parts = parts
        if self._process != os.getpid():
            self._process = os.getpid()
            make_capture_folder(self._options.folder)
            atexit.register(self._end)
        self._verdicts.start()  # at the exit, where it gets its job, no thread starts
        job = partial(save_step, tuple(parts), self._options, self._verdicts)
        self._writer.put(f"step {parts[0].step}", job)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(writer: Writer, verdicts: VerdictWorker) -> None:
    """Write the files that wait, and judge them, in 30 s at most."""
    end = time.monotonic() + CLOSE_TIMEOUT
    writer.close()
    verdicts.close(max(end - time.monotonic(), 0.0))


def _select(inputs: Sequence[Any], samples: Sequence[int]) -> list[Any]:
    return [inputs[sample] for sample in samples]


_NEVER_CALLED = (
    "neither `step` nor `step_keys` was called. verl runs the V1 trainer by default"
    " (`trainer.use_v1=True`), and skips the training engine's pass with"
    " `algorithm.rollout_correction.bypass_mode=True`"
)


@dataclass(kw_only=True)
class Outcome:
    """The outcome of the calls of a Recorder.

    Attributes
    ----------
    num_calls: Number of calls of `step` and `step_keys`.
    num_due: Number of these whose step is recorded.
    is_sent: Whether another Recorder may record the steps: this one was pickled, as for
        a Ray actor, or it notes weights.
    """

    options: Options
    writer: Writer
    num_calls: int = 0
    num_due: int = 0
    is_sent: bool = False
    _process: int = field(default_factory=os.getpid)

    def warn_early(self) -> None:
        """Log a line if the facts of the run leave nothing to record."""
        if reason := why_nothing_to_record(self.options.facts):
            logger.warning("no step will be recorded because %s", reason)

    def report(self) -> None:
        """Log a line if no step was recorded. Called when the Recorder or process ends.

        A forked child, and a Recorder that was sent elsewhere, log nothing.
        """
        is_other = self.is_sent and not self.num_calls
        if is_other or self._process != os.getpid():
            return
        if reason := self._reason():
            folder = self.options.folder
            logger.warning("no step was recorded in %s because %s", folder, reason)

    def _reason(self) -> str:
        """Return why no step was recorded; "" if one was, or still may be."""
        if self.writer.num_done:
            return ""
        if not self.num_calls:
            return why_nothing_to_record(self.options.facts) or _NEVER_CALLED
        if not self.num_due and not self.writer.first_error:
            steps = f"{self.num_calls} calls" if self.num_calls > 1 else "one call"
            return (
                f"`every` is {self.options.every}, and none of {steps} had a step that"
                " is a multiple of it"
            )
        return self.writer.first_error

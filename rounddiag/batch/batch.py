"""Batch: one flat tensor per field, and the offsets at which samples start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from rounddiag.batch.context_store import Contexts, check_contexts
from rounddiag.batch.html import as_html, known_failures
from rounddiag.batch.layout import (
    PER_TOKEN,
    SampleIndex,
    from_padded,
    from_rows,
    marked_rows,
    move,
    select,
    selected_rows,
)
from rounddiag.batch.missing import lacks, missing_error
from rounddiag.batch.turns import Turns
from rounddiag.batch.validation import check_fields, check_rounds, encodable_names
from rounddiag.columns import Catalogue
from rounddiag.errors import BatchError
from rounddiag.schema import LENGTH_UNIT
from rounddiag.segmentation import Rounds, find_rounds
from rounddiag.vision import Screenshot
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    from rounddiag.batch import contexts as contexts_module
    from rounddiag.batch import steps as steps_module
    from rounddiag.batch import turns as turns_module


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Batch:
    """The samples of one training step, with the engines' log-probabilities.

    Every per-token field is one flat tensor of `num_positions` values. Sample `i`
    starts at `offsets[i]`; its first `lengths[i]` positions are real, the rest is
    padding. Build a Batch with `from_padded`, `from_rows` or `from_turns`, or read one
    with `rounddiag.load`. What is not known is None: `lacks` says why in a sentence.

    Parameters
    ----------
    response_mask : Tensor of 0 and 1, any dtype
        1 where the model generated the token. Runs of 1s are the rounds.
    response_ids : Tensor of int, optional
        Token ids of the responses: generated tokens and the observations in between.
        None where only texts are known, or where the batch is redacted.
    turns : tuple of tuple of Turn, optional
        What each role said, per sample. The prompt is the turns before the first one
        of `assistant`.
    pieces : Tensor of int, optional
        Of a batch without ids: where each position's piece ends, in characters of the
        text of the sample's turns after the prompt.
    rollout_log_probs, old_log_probs : Tensor of float, optional
        Log-probability, in nats, by the sampling engine and by the training engine.
    offsets : Tensor of int64, shape (num_samples + 1,)
        Where each sample starts in the fields above.
    lengths : Tensor of int64, shape (num_samples,)
        How many positions of each sample are real.
    prompt_ids, prompt_offsets : Tensor of int, optional
        Concatenated token ids of the prompts, and where each prompt starts.
    entropy, advantages : Tensor of float, optional
        Per position; entropy in nats.
    loss_mask : Tensor, optional
        The mask after rejection, per position. Never used to find rounds.
    round_ids : Tensor of int, optional
        Per position; a run of 1s is also split where this changes.
    rewards : Tensor of float, shape (num_samples,), optional
    group_ids, sample_ids : tuple of str, optional
        The prompt a sample belongs to, and the sample's own name.
    step : int, optional
        The trainer's global step.
    images : tuple of tuple of Screenshot, optional
        The screenshots of each sample, in order.
    tokenizer : object, optional
        A path of a `tokenizer.json` or its folder, a model name, a tokenizer or
        processor of transformers, a tokenizer of tokenizers, or a function from a list
        of ids to text; see `rounddiag.text.pieces`.
    position_ids : tuple of Tensor, optional
        One per sample, in the shape of the file: of prompt and response, or of the
        chains of contexts, one after the other.
    rollout_ids : tuple of Tensor, optional
        One per sample: the response's token ids as returned by the sampling engine,
        where the file has them in addition to the trainer's. Their number can differ.
    contexts : Contexts, optional
        Of samples joined from rows that are steps: the contexts that do not go on from
        the one before. `context` returns that of any round, in any batch.
    scores : mapping of str to Tensor
        Further log-probabilities of the same tokens, by name.
    sample_columns : mapping of str to array of num_samples values
    round_columns : mapping of str to array, including `sample` and `round`
    token_columns : mapping of str to Tensor of numbers or flags
        Further columns of the file, per sample, per round and per position, unchanged.
    meta : mapping
        Provenance: `mask_source`, `old_log_probs_source`, `sampling` and others.

    Examples
    --------
    >>> import torch
    >>> batch = Batch.from_padded(
    ...     response_ids=torch.tensor([[5, 6, 7]]),
    ...     response_mask=torch.tensor([[1, 0, 1]]),
    ...     rollout_log_probs=torch.tensor([[-1.0, 0.0, -2.0]]),
    ...     old_log_probs=torch.tensor([[-1.5, 0.0, -2.0]]),
    ... )
    >>> batch
    Batch(num_samples=1, num_rounds=2, num_tokens=2)
    """

    response_mask: Tensor
    offsets: Tensor
    lengths: Tensor
    response_ids: Tensor | None = None
    turns: Turns | None = None
    pieces: Tensor | None = None
    rollout_log_probs: Tensor | None = None
    old_log_probs: Tensor | None = None
    prompt_ids: Tensor | None = None
    prompt_offsets: Tensor | None = None
    entropy: Tensor | None = None
    advantages: Tensor | None = None
    loss_mask: Tensor | None = None
    round_ids: Tensor | None = None
    rewards: Tensor | None = None
    group_ids: tuple[str, ...] | None = None
    sample_ids: tuple[str, ...] | None = None
    step: int | None = None
    images: tuple[tuple[Screenshot, ...], ...] | None = None
    tokenizer: object | None = None
    position_ids: tuple[Tensor, ...] | None = None
    rollout_ids: tuple[Tensor, ...] | None = None
    contexts: Contexts | None = None
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    sample_columns: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    round_columns: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    token_columns: Mapping[str, Tensor] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in encodable_names(self).items():
            object.__setattr__(self, name, value)
        check_fields(self)
        check_rounds(self)
        check_contexts(self)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is computed of it and kept on it, such as its diagnosis."""
        return {
            name: value
            for name, value in self.__dict__.items()
            if not name.startswith("_")
        }

    @classmethod
    def from_padded(
        cls,
        *,
        response_mask: Tensor | np.ndarray[Any, Any] | Sequence[Any],
        **others: Any,  # noqa: ANN401 the fields have many types
    ) -> Batch:
        """Build a batch from padded tensors, without copying contiguous ones.

        Parameters
        ----------
        response_mask : Tensor, array or lists, shape (num_samples, num_positions)
        **others
            The other fields. Per-token fields, and those in `scores` and
            `token_columns`, have the shape of `response_mask`.
            `lengths` is the number of real positions per row, by default all.
            `prompt_ids` is padded too; `prompt_mask` marks its real part.
        """
        return cls(**from_padded(response_mask, others))

    @classmethod
    def from_rows(cls, *, response_mask: Sequence[Any], **others: Any) -> Batch:  # noqa: ANN401 the fields have many types
        """Build a batch from rows of different lengths.

        Parameters
        ----------
        response_mask : sequence of Tensor, array or list, one per sample
        **others
            The other fields. Per-token fields, those in `scores` and `token_columns`,
            and `prompt_ids` are sequences too.
        """
        return cls(**from_rows(response_mask, others))

    if TYPE_CHECKING:  # of modules that know `Batch`: `rounddiag.batch` gives it these
        from_turns = classmethod(turns_module.from_turns)
        from_steps = staticmethod(steps_module.from_steps)
        context = contexts_module.context
        context_engines = property(contexts_module.context_engines)
        chains = contexts_module.chains

    @cached_property
    def rounds(self) -> Rounds:
        """The table of rounds."""
        return find_rounds(self.response_mask, self.offsets, self.round_ids)

    @property
    def columns(self) -> Catalogue:
        """The columns of samples, rounds and tokens: of the file, and of the fields."""
        return Catalogue(self)

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return len(self.lengths)

    @property
    def num_positions(self) -> int:
        """Number of positions in all samples, with padding."""
        return len(self.response_mask)

    @property
    def num_rounds(self) -> int:
        """Number of rounds in all samples."""
        return len(self.rounds)

    @property
    def num_tokens(self) -> int:
        """Number of generated tokens."""
        return int(self.rounds.num_tokens.sum())

    @property
    def per_token(self) -> dict[str, Tensor]:
        """The per-token fields of this batch, the required ones first."""
        fields = {name: getattr(self, name) for name in PER_TOKEN}
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def is_redacted(self) -> bool:
        """Whether it was saved with `redact=True`, which leaves out ids and text."""
        return bool(self.meta.get("redacted"))

    @property
    def token_noun(self) -> str:
        """What its tokens are: "token", or "word" where none is recorded.

        A batch of texts without log-probs has words, numbers and signs in their place.
        """
        log_probs = (self.old_log_probs, self.rollout_log_probs, *self.scores.values())
        is_text = self.pieces is not None and all(each is None for each in log_probs)
        return "word" if is_text else LENGTH_UNIT

    def lacks(self, *fields: str) -> str | None:
        """Return one sentence on what is missing, None if all is there.

        Parameters
        ----------
        *what : str
            `ids`, `text`, `old`, `rollout`, a score, or the name of a field.

        Examples
        --------
        >>> import rounddiag as rd
        >>> batch = rd.load("sample_data/healthy.parquet")
        >>> batch.lacks("ids", "old", "rollout") is None
        True
        >>> batch.lacks("current")
        'This batch has no `current`.'
        """
        return lacks(self, *fields)

    def require(self, *fields: str) -> None:
        """Raise a BatchError with the sentence of `lacks` if something is missing."""
        if self.lacks(*fields):
            raise missing_error(self, *fields)

    def require_ids(self) -> Tensor:
        """Return the token ids of all positions; raise a BatchError without any."""
        if self.response_ids is None:
            raise missing_error(self, "ids")
        return self.response_ids

    def both_log_probs(self) -> tuple[Tensor, Tensor]:
        """Return `old_log_probs` and `rollout_log_probs`."""
        return self.log_probs("old"), self.log_probs("rollout")

    def log_probs(self, score: str) -> Tensor:
        """Return the log-probabilities `old`, `rollout`, or one of `scores` by name."""
        known = {
            "old": self.old_log_probs,
            "rollout": self.rollout_log_probs,
            **self.scores,
        }
        values = known.get(score)
        if score in known and values is None:
            raise missing_error(self, score)
        if values is None:
            raise BatchError.build(
                expected=f"one of the scores {sorted(known)}",
                found=repr(score),
                advice="Name a score that the batch has.",
            )
        return values

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: SampleIndex | str | Sequence[str | int]) -> Batch:
        if isinstance(index, str):
            index = self.sample_number(index)
        elif isinstance(index, list | tuple):  # numbers and flags stay what they are
            index = [self._number(entry) for entry in index]
        return select(self, selected_rows(cast("SampleIndex", index), self.num_samples))

    def _number(self, sample: str | int) -> int:
        return self.sample_number(sample) if isinstance(sample, str) else sample

    def sample_number(self, sample: str | int) -> int:
        """Return the number of a sample, given the number or its id in `sample_ids`.

        Examples
        --------
        >>> import rounddiag as rd
        >>> rd.load("sample_data/image_window.parquet").sample_number("task-01/0")
        4
        """
        if isinstance(sample, str):
            numbers = [
                i for i, name in enumerate(self.sample_ids or ()) if name == sample
            ]
        else:
            numbers = [int(sample)] if 0 <= sample < self.num_samples else []
        if len(numbers) != 1:
            raise BatchError.build(
                key="sample",
                expected=f"the id of one sample, or a number below {self.num_samples}",
                found=f"{sample!r:.80}: {len(numbers)} of"
                f" {pluralize(self.num_samples, 'sample')}",
                advice="`rounddiag.sample_frame(batch)` lists samples and their ids.",
            )
        return numbers[0]

    def where(self, keep: Sequence[bool] | np.ndarray[Any, Any] | Tensor) -> Batch:
        """Return the samples where `keep` is true, renumbered from 0.

        Parameters
        ----------
        keep : sequence of bool, one per sample
        """
        return select(self, marked_rows(keep, self.num_samples))

    def with_meta(self, meta: Mapping[str, Any]) -> Batch:
        """Return the batch with other facts; nothing else is checked or found again."""
        batch = copy(self)
        object.__setattr__(batch, "meta", dict(meta))
        return batch

    def to(self, device: str | torch.device) -> Batch:
        """Return the same batch with its tensors on another device."""
        return move(self, device)

    def __repr__(self) -> str:
        num_failed = len(known_failures.get(self, ()))
        failed = f", failed_checks={num_failed}" if num_failed else ""
        redacted = ", redacted=True" if self.is_redacted else ""
        return (
            f"Batch(num_samples={self.num_samples}, num_rounds={self.num_rounds}, "
            f"num_tokens={self.num_tokens}{redacted}{failed})"
        )

    def _repr_html_(self) -> str:
        return as_html(self)


def require_batch(value: object) -> Batch:
    """Return a Batch; raise a BatchError if a value, such as a path, is not a Batch.

    Examples
    --------
    >>> require_batch("step_40.parquet")
    Traceback (most recent call last):
    ...
    rounddiag.errors.BatchError: expected a Batch; found a str. Open a file with \
`rounddiag.load(path)` first.
    """
    if not isinstance(value, Batch):
        raise BatchError.build(
            expected="a Batch",
            found=f"a {type(value).__name__}",
            advice="Open a file with `rounddiag.load(path)` first.",
        )
    return value

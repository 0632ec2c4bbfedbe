"""Batch: one flat tensor a field, and offsets that say where each sample starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rounddiag.batch.html import as_html, failed_checks
from rounddiag.batch.layout import (
    PER_TOKEN,
    chosen,
    from_padded,
    from_rows,
    marked,
    moved,
    select,
)
from rounddiag.batch.validation import check_fields, check_rounds
from rounddiag.errors import BatchError
from rounddiag.segmentation import Rounds, find_rounds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import torch
    from torch import Tensor
    from typing_extensions import Self

    from rounddiag.batch.layout import Index
    from rounddiag.vision import Screenshot


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Batch:
    """The samples of one training step, with both engines' log-probabilities.

    Every per-token field is one flat tensor of `num_positions` values; sample `i`
    stands at `offsets[i]`, its first `lengths[i]` positions are real and the rest is
    padding. Build it with `from_padded` or `from_rows`, or let `rounddiag.load` do so.

    Parameters
    ----------
    response_ids : Tensor of int
        Token ids of the responses: what the model wrote, and observations between.
    response_mask : Tensor of 0 and 1, any dtype
        1 where the model wrote the token. Its runs of 1s are the rounds.
    rollout_log_probs, old_log_probs : Tensor of float
        Log-probability, in nats, by the engine that sampled and by the engine that
        trains.
    offsets : Tensor of int64, shape (num_samples + 1,)
        Where each sample starts in the fields above.
    lengths : Tensor of int64, shape (num_samples,)
        How many positions of each sample are real.
    prompt_ids, prompt_offsets : Tensor of int, optional
        Token ids of the prompts, end to end, and where each starts.
    entropy, advantages : Tensor of float, optional
        Per position; entropy in nats.
    loss_mask : Tensor, optional
        The mask after rejection, per position. Never used to find rounds.
    round_ids : Tensor of int, optional
        Per position; a run of 1s is also divided where this changes.
    rewards : Tensor of float, shape (num_samples,), optional
    group_ids, sample_ids : tuple of str, optional
        Which prompt a sample belongs to, and its own name.
    step : int, optional
        The trainer's global step.
    images : tuple of tuple of Screenshot, optional
        What each sample was shown, in order.
    tokenizer : object, optional
        Path of a `tokenizer.json` or of its folder, a model's name, a tokenizer or a
        processor of transformers, a tokenizer of tokenizers, or a function from a list
        of ids to text: whatever `rounddiag.text.pieces` takes.
    position_ids : tuple of Tensor, optional
        One per sample, in the shape that the file had.
    rollout_ids : tuple of Tensor, optional
        One per sample: the response's token ids as the sampling engine gave them, where
        the file has them beside the trainer's; they can differ in number.
    scores : mapping of str to Tensor
        More log-probabilities of the same tokens, by name.
    sample_columns : mapping of str to array, each of num_samples values
    round_columns : mapping of str to array, with `sample` and `round` among them
        Whatever else the file knows of samples and rounds, verbatim.
    meta : mapping
        Where things came from: `mask_source`, `old_log_probs_source`, `sampling`, ...

    Raises
    ------
    BatchError
        If the fields do not fit together.

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

    response_ids: Tensor
    response_mask: Tensor
    rollout_log_probs: Tensor
    old_log_probs: Tensor
    offsets: Tensor
    lengths: Tensor
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
    scores: Mapping[str, Tensor] = field(default_factory=dict)
    sample_columns: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    round_columns: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)
        check_rounds(self)

    @classmethod
    def from_padded(cls, *, response_ids: Tensor, **others: Any) -> Self:  # noqa: ANN401 the fields have many types
        """Build a batch from padded tensors, without a copy where they are contiguous.

        Parameters
        ----------
        response_ids : Tensor, shape (num_samples, num_positions)
        **others
            The other fields. Those per token have the shape of `response_ids`;
            `lengths` says how much of each row is real (all of it when left out);
            `prompt_ids` is padded too, with a `prompt_mask` that marks its real part.

        Returns
        -------
        Batch

        Raises
        ------
        BatchError
            If a field is missing or has another shape.
        """
        return cls(**from_padded(response_ids, others))

    @classmethod
    def from_rows(cls, *, response_ids: Sequence[Tensor], **others: Any) -> Self:  # noqa: ANN401 the fields have many types
        """Build a batch from rows of different lengths.

        Parameters
        ----------
        response_ids : sequence of Tensor, one a sample
        **others
            The other fields. Those per token, and `prompt_ids`, are sequences too.

        Returns
        -------
        Batch

        Raises
        ------
        BatchError
            If a field is missing or has rows of other lengths.
        """
        return cls(**from_rows(response_ids, others))

    @cached_property
    def rounds(self) -> Rounds:
        """The table of rounds."""
        return find_rounds(self.response_mask, self.offsets, self.round_ids)

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return len(self.lengths)

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
        """The per-token fields that are there, the required ones first."""
        found = {name: getattr(self, name) for name in PER_TOKEN}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def is_redacted(self) -> bool:
        """Whether it was saved with `redact=True`: every token id is 0 then."""
        return bool(self.meta.get("redacted"))

    def log_probs(self, score: str) -> Tensor:
        """Return the log-probabilities called `old`, `rollout`, or as in `scores`.

        Raises
        ------
        BatchError
            If the batch has no such score.
        """
        known = {
            "old": self.old_log_probs,
            "rollout": self.rollout_log_probs,
            **self.scores,
        }
        if score not in known:
            raise BatchError.build(
                expected=f"one of the scores {sorted(known)}",
                found=repr(score),
                advice="Name a score that the batch has.",
            )
        return known[score]

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: Index) -> Self:
        return select(self, chosen(index, self.num_samples))

    def where(self, keep: Sequence[bool] | np.ndarray[Any, Any] | Tensor) -> Self:
        """Return the samples that `keep` marks, renumbered from 0.

        Parameters
        ----------
        keep : sequence of bool, one per sample

        Raises
        ------
        BatchError
            If `keep` does not have one value per sample.
        """
        return select(self, marked(keep, self.num_samples))

    def to(self, device: str | torch.device) -> Self:
        """Return the same batch with its tensors on another device."""
        return moved(self, device)

    def __repr__(self) -> str:
        num_failed = len(failed_checks(self.meta))
        failed = f", failed_checks={num_failed}" if num_failed else ""
        redacted = ", redacted=True" if self.is_redacted else ""
        return (
            f"Batch(num_samples={self.num_samples}, num_rounds={self.num_rounds}, "
            f"num_tokens={self.num_tokens}{redacted}{failed})"
        )

    def _repr_html_(self) -> str:
        return as_html(self)


def require_batch(given: object) -> None:
    """Raise a BatchError for what is no Batch: the path of one, say.

    Examples
    --------
    >>> require_batch("step_40.parquet")
    Traceback (most recent call last):
    ...
    rounddiag.errors.BatchError: expected a Batch; found a str. Open a file with \
`rounddiag.load(path)` first.
    """
    if not isinstance(given, Batch):
        raise BatchError.build(
            expected="a Batch",
            found=f"a {type(given).__name__}",
            advice="Open a file with `rounddiag.load(path)` first.",
        )

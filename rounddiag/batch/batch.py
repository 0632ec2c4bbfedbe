"""Batch: one flat tensor per field, and the offsets at which samples start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from rounddiag.batch.context_store import Contexts, check_contexts
from rounddiag.batch.contexts import Context, chains, context, context_engines
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
from rounddiag.batch.missing import MissingError, lacks
from rounddiag.batch.turns import Turns, fields_of_turns
from rounddiag.batch.validation import check_fields, check_rounds, encodable_names
from rounddiag.columns import Catalogue
from rounddiag.errors import BatchError
from rounddiag.segmentation import Rounds, find_rounds
from rounddiag.vision import Screenshot
from rounddiag.wording import pluralize


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

    @classmethod
    def from_turns(
        cls,
        samples: Iterable[Iterable[Sequence[Any]]],
        **others: Any,  # noqa: ANN401 the fields have many types
    ) -> Batch:
        """Build a batch from what each role said, without token ids.

        A loader of trajectories ends here: it makes the turns, and passes by keyword
        what else it knows. The turns before the first of `assistant` are the prompt;
        each turn of `assistant` is a round, numbered from 0, so that row `i` of
        `round_columns` belongs to the i-th such turn. Each position is a piece of text;
        joined, the pieces are the text.

        Parameters
        ----------
        samples : one iterable of turns per sample
            A turn is `(role, text)`, `(role, text, images)`, or `(role, text, images,
            tokens, log_probs)`: its screenshots, and where the sampler returned them
            the texts of its tokens, which joined are `text`, and their log-probs. A
            screenshot without a round and a position gets those of its turn.
        **others
            Fields per sample and for the batch, such as `rewards`, `group_ids`,
            `sample_ids`, `sample_columns`, `round_columns` and `meta`.

        Returns
        -------
        Batch
            With `turns`, `pieces`, `images` and, if there were any,
            `rollout_log_probs`. With ids, use `from_rows(turns=...)` instead, with
            each turn as `(role, text, num_images)`.

        Examples
        --------
        >>> batch = Batch.from_turns(
        ...     [[("user", "Open the menu."), ("assistant", "click(3, 4)")]],
        ...     rewards=[1.0],
        ... )
        >>> batch
        Batch(num_samples=1, num_rounds=1, num_tokens=6)
        >>> batch.lacks("old", "rollout")
        "This batch has no log-probs: save both engines' with the token ids."
        """
        return cls.from_rows(**{**fields_of_turns(samples), **others})

    @classmethod
    def from_steps(
        cls,
        steps: object,
        *,
        tokenizer: object | None = None,
        step: int | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Batch:
        """Build a batch from the history of any agent: a table with one row per step.

        Parameters
        ----------
        steps : DataFrame, or list of dict
            Each step has a context of its own: all that the model read before it wrote
            the response. The rows may have any order. Their columns:

            ==========================  ================================================
            `trajectory`, `step`        the trajectory's name; the step's number
            `prompt_ids`, or            token ids of the context,
            `messages`, or              messages as OpenAI, Anthropic, Gemini or MCP
                                        write them, with calls and pictures,
            `prompt`                    or a text
            `response`                  token ids with `prompt_ids`, else a text,
                                        content or a message; what it calls is the
                                        column `action`, if there is none
            `screenshots`               pictures of the context that are in no message,
                                        one or a list: bytes, a data URL, a picture of
                                        PIL, an array of pixels, or `Screenshot`; also
                                        `screenshot`
            `rollout_prompt_ids`        with `prompt_ids`, which the trainer read: what
                                        the sampler read
            `reward`                    a sample has that of its last step
            `rollout_log_probs`,        of each token of the response, in nats; with
            `old_log_probs`             `prompt_ids` alone
            others, such as `action`    a column of samples where all rows of each
                                        trajectory agree, else of rounds
            ==========================  ================================================

        tokenizer, step, meta
            Fields of the batch.

        Returns
        -------
        Batch
            One sample per trajectory, in the order of the first rows. With `prompt_ids`
            it is that of `load(sample_by="trajectory")`: `context` returns each
            context. With texts alone it is that of `from_turns`: a sample has the
            messages and pictures that entered each context, and `context` returns each
            context. What is in a message and not read is counted and named in `meta`;
            addresses of pictures are not followed.

        Raises
        ------
        BatchError
            If a column is missing, a cell that must have a value is empty, two rows
            have the same step of a trajectory, or there are no rows.

        Examples
        --------
        >>> go = {"role": "user", "content": "Go on."}
        >>> reply = {"role": "assistant", "content": "back()"}
        >>> first = {"trajectory": "a", "step": 0, "messages": [go]}
        >>> then = {"trajectory": "a", "step": 1, "messages": [go, reply, go]}
        >>> batch = Batch.from_steps(
        ...     [{**first, "response": "back()"}, {**then, "response": "click(3, 4)"}]
        ... )
        >>> batch.context(0, 1).text
        'Go on.back()Go on.'
        """
        from rounddiag.batch.steps import batch_of_steps

        return batch_of_steps(
            steps, {"tokenizer": tokenizer, "step": step, "meta": dict(meta or {})}
        )

    @cached_property
    def rounds(self) -> Rounds:
        """The table of rounds."""
        return find_rounds(self.response_mask, self.offsets, self.round_ids)

    @property
    def columns(self) -> Catalogue:
        """The columns of samples, rounds and tokens: of the file, and of the fields."""
        return Catalogue(self)

    def context(
        self,
        sample: int | str,
        round: int,  # noqa: A002 the word of the frames
        engine: str = "old",
    ) -> Context:
        """Return what an engine read before the model wrote a round.

        Where a sample is one context, that is what stands before the round.

        Parameters
        ----------
        sample : int or str
            Its number or id.
        round : int
        engine : str, optional
            One of `context_engines`: `old`, the training engine, whose prompts are
            those of the batch; `rollout`, the sampler, where the round column
            `prompt_ids` records what it read.

        Raises
        ------
        BatchError
            If there is no such round or record, or the batch has neither ids nor text.

        Examples
        --------
        >>> import rounddiag as rd
        >>> batch = rd.load("sample_data/image_window.parquet")
        >>> batch.context("task-01/0", 2)
        Context(sample=4, round=2, engine='old', num_tokens=144, num_images=3, \
follows='append')
        """
        return context(self, self.sample_number(sample), int(round), engine)

    @property
    def context_engines(self) -> tuple[str, ...]:
        """The engines whose contexts are recorded: `old`, and perhaps `rollout`."""
        return context_engines(self)

    def chains(self, sample: int | str) -> list[range]:
        """Return the rounds of each chain: consecutive rounds whose contexts append.

        The context of the last round of a chain, followed by what was written then, is
        what an engine scores in one pass. A sample that is one context is one chain.
        """
        return chains(self, self.sample_number(sample))

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
            raise MissingError(self, *fields)

    def require_ids(self) -> Tensor:
        """Return the token ids of all positions; raise a BatchError without any."""
        if self.response_ids is None:
            raise MissingError(self, "ids")
        return self.response_ids

    def both_log_probs(self) -> tuple[Tensor, Tensor]:
        """Return `old_log_probs` and `rollout_log_probs`."""
        self.require("old", "rollout")
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
            raise MissingError(self, score)
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
                found=f"{sample!r:.80} of {pluralize(len(numbers), 'sample')}",
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

"""The context of a round: what an engine read before the model wrote it.

In an ordinary sample it is all that stands before the round. In a sample joined from
rows that are steps, a row may have a context of its own: history is rewritten, older
screenshots leave. The sample then holds, in this order, the first context, and for each
round what entered its context and what the model wrote. A later context is a list of
ranges of this sequence, so that nothing is stored twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch.missing import missing_error
from rounddiag.batch.sample_sequence import SampleSequence
from rounddiag.batch.sequence_difference import appends, shared_ranges
from rounddiag.errors import BatchError
from rounddiag.schema import CONTEXT_COLUMNS
from rounddiag.text import pieces
from rounddiag.vision import Screenshot
from rounddiag.wording import join_names

if TYPE_CHECKING:
    from rounddiag.batch.batch import Batch

Follows: TypeAlias = Literal["first", "append", "rewritten"]
# The round column with the ids that the sampler read (`capture.round_record`).
SAMPLER_PROMPTS = "prompt_ids"


@dataclass(frozen=True, kw_only=True)
class ContextPiece:
    """A stretch of a context: text, or one picture.

    Attributes
    ----------
    kind: `text` or `image`.
    start, stop: Range of ids. Of a batch without ids, of characters of the text.
    image: The picture; None for text.
    """

    kind: Literal["text", "image"]
    start: int
    stop: int
    image: Screenshot | None = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Context:
    """What an engine read before the model wrote a round.

    Attributes
    ----------
    sample, round: Numbers of the round.
    engine: `old`, the training engine, or `rollout`, the sampler.
    ids: Tensor of int64. Token ids; image tokens as recorded, so usually expanded.
    images: The pictures, in order.
    follows: `first`; `append` if it goes on from the context before and what the model
        wrote then, with the same pictures; else `rewritten`.
    entered: What is new, as ranges of this context; of the first context all of it.
    left: What is gone, as ranges of the context before followed by what the model
        wrote then. Fewer than 4 tokens that stay between what changes count as left
        and entered.
    """

    sample: int
    round: int
    engine: str
    ids: Tensor
    images: tuple[Screenshot, ...]
    follows: Follows
    entered: tuple[ContextPiece, ...]
    left: tuple[ContextPiece, ...]
    _pieces: tuple[ContextPiece, ...] = ()
    _tokenizer: object | None = None
    _texts: Sequence[str] | None = field(default=None)

    @property
    def num_tokens(self) -> int:
        """Number of ids; of a batch without ids, of pieces of text."""
        return len(self.ids) if self._texts is None else len(self._texts)

    @property
    def num_images(self) -> int:
        """Number of pictures."""
        return len(self.images)

    @cached_property
    def text(self) -> str | None:
        """The text, in which a picture is one token; None without a tokenizer."""
        if self._texts is not None:
            return "".join(self._texts)
        if self._tokenizer is None:
            return None
        is_shown = np.ones(len(self.ids), dtype=bool)
        for piece in self._pieces:
            is_shown[piece.start + 1 : piece.stop] = piece.kind == "text"
        shown = self.ids.numpy()[is_shown]
        return "".join(pieces(shown, self._tokenizer, visible_whitespace=False))

    @property
    def pieces(self) -> tuple[ContextPiece, ...]:
        """All of it, as text and pictures in order."""
        return self._pieces

    def __repr__(self) -> str:
        return (
            f"Context(sample={self.sample}, round={self.round}, engine={self.engine!r},"
            f" num_tokens={self.num_tokens}, num_images={self.num_images},"
            f" follows={self.follows!r})"
        )


def chains(batch: Batch, sample: int | str) -> list[range]:
    """Return the rounds of each chain: consecutive rounds whose contexts append.

    The context of the last round of a chain, followed by what was written then, is what
    an engine scores in one pass. A sample that is one context is one chain.
    """
    every = SampleSequence(batch, batch.sample_number(sample)).chains
    return [chain.rounds for chain in every if chain.rounds]


def context_engines(batch: Batch) -> tuple[str, ...]:
    """Return the engines whose contexts are recorded: `old`, and perhaps `rollout`."""
    return ("old", "rollout") if SAMPLER_PROMPTS in batch.round_columns else ("old",)


def context(
    batch: Batch,
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
        One of `context_engines`: `old`, the training engine, whose prompts are those of
        the batch; `rollout`, the sampler, where the round column `prompt_ids` records
        what it read.

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
    sample = batch.sample_number(sample)
    round_ = _require(batch, sample, round, engine)
    if batch.response_ids is None and batch.pieces is None:
        raise missing_error(batch, "text")
    sequence = kept_sequence(batch, sample)
    if engine == "rollout" and batch.response_ids is not None:
        return _sampler_context(batch, sample, round_, sequence)
    index = sequence.index(round_)
    parts = _parts(index, sequence)
    own = Context(
        sample=sample,
        round=round_,
        engine=engine,
        ids=torch.from_numpy(sequence.ids[index].astype(np.int64)),
        images=_images_of(batch, sample, round_, sequence, parts),
        follows=_follows(sequence, round_),
        entered=tuple(_entered(sequence, round_, index, parts)),
        left=tuple(_left(sequence, round_, index)),
        _pieces=tuple(parts),
        _tokenizer=batch.tokenizer,
    )
    return _in_text(own, batch, sequence) if batch.response_ids is None else own


def context_columns(batch: Batch) -> dict[str, Array]:
    """Return `rounddiag.schema.CONTEXT_COLUMNS` of all rounds, in their order.

    Pictures are counted where all of them have a position among tokens.
    """
    shots = [shot for row in batch.images or () for shot in row]
    has_places = batch.response_ids is not None or batch.contexts is not None
    is_counted = bool(shots) and all(shot.position is not None for shot in shots)
    is_counted &= has_places
    rows = [
        counts
        for sample in range(len(batch))
        for counts in _counts(SampleSequence(batch, sample), is_counted=is_counted)
    ]
    table = np.array(rows, dtype=np.int64).reshape(-1, len(CONTEXT_COLUMNS)).T
    return {
        column.name: values.astype(column.dtype)
        for column, values in zip(CONTEXT_COLUMNS, table, strict=True)
        if is_counted or not column.name.endswith("_images")
    }


def _counts(sequence: SampleSequence, *, is_counted: bool) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of each round's context, in the order of `CONTEXT_COLUMNS`."""
    pictures = sequence.pictures if is_counted else []
    shown = np.array([picture.start for picture in pictures], dtype=np.int64)
    before = np.zeros(2, dtype=np.int64)  # tokens and pictures
    for round_, start in enumerate(sequence.starts):
        own = _num_within(shown, sequence.ranges(round_))
        entered = _num_within(shown, np.array([[sequence.entered_at(round_), start]]))
        left = np.zeros(2, dtype=np.int64)
        if round_ in sequence.rewritten and round_:
            since = [[sequence.starts[round_ - 1], sequence.entered_at(round_)]]
            left = before + _num_within(shown, np.array(since)) - (own - entered)
        is_rewritten = round_ > 0 and round_ in sequence.rewritten
        new = own if not round_ else entered
        yield (*own.tolist(), int(new[0]), *left.tolist(), int(is_rewritten))
        before = own


def _num_within(shown: Array, ranges: Array) -> Array:
    """Return the number of tokens in ranges, and of pictures that begin there."""
    num_pictures = np.diff(np.searchsorted(shown, ranges), axis=1).sum()
    return np.array([np.diff(ranges, axis=1).sum(), num_pictures])


def _require(batch: Batch, sample: int, round_: int, engine: str) -> int:
    engines = context_engines(batch)
    if engine not in engines:
        raise BatchError.build(
            key="engine",
            expected=join_names([*map(repr, engines)], len(engines)),
            found=repr(engine),
            advice="`capture.round_record(..., keep_prompt=True)` records what the"
            " sampler read.",
        )
    num = int((batch.rounds.sample == sample).sum())
    if round_ not in range(num):
        raise BatchError.build(
            key="round",
            expected=f"a round of sample {sample}, below {num}",
            found=repr(round_),
            advice="`rounddiag.round_frame(batch)` lists rounds.",
        )
    return int(round_)


def kept_sequence(batch: Batch, sample: int) -> SampleSequence:
    """Return the sequence of a sample, kept on the batch for its other rounds."""
    known = batch.__dict__.get("_sequence")
    if isinstance(known, SampleSequence) and known.sample == sample:
        return known
    sequence = SampleSequence(batch, sample)
    batch.__dict__["_sequence"] = sequence
    return sequence


def _follows(sequence: SampleSequence, round_: int) -> Follows:
    if not round_:
        return "first"
    return "rewritten" if round_ in sequence.rewritten else "append"


def _parts(index: Array, sequence: SampleSequence) -> list[ContextPiece]:
    shown = [
        (start, sequence.pictures[number]) for start, number in sequence.shown(index)
    ]
    return _cut(
        len(index),
        [
            ContextPiece(
                kind="image",
                start=start,
                stop=min(start + picture.stop - picture.start, len(index)),
                image=picture.image,
            )
            for start, picture in shown
        ],
    )


def _cut(size: int, shown: Sequence[ContextPiece]) -> list[ContextPiece]:
    """Put the text between pictures."""
    parts, at = [], 0
    for piece in shown:
        if piece.start > at:
            parts.append(ContextPiece(kind="text", start=at, stop=piece.start))
        parts.append(piece)
        at = piece.stop
    if at < size:
        parts.append(ContextPiece(kind="text", start=at, stop=size))
    return parts


def _images_of(
    batch: Batch,
    sample: int,
    round_: int,
    sequence: SampleSequence,
    parts: Sequence[ContextPiece],
) -> tuple[Screenshot, ...]:
    """Return the pictures of a context; those without a position by their round."""
    placed = tuple(piece.image for piece in parts if piece.image is not None)
    shots = (batch.images or ((),) * len(batch))[sample]
    if all(shot.position is not None for shot in shots):
        return placed
    (first,) = (c.rounds[0] for c in sequence.chains if round_ in c.rounds)
    return tuple(
        shot
        for shot in shots
        if shot.round is not None and first <= shot.round <= round_
    )


def _marked(parts: Sequence[ContextPiece], is_marked: Array) -> Iterator[ContextPiece]:
    """Yield the parts of pieces that are marked; a picture by its first token."""
    begins = np.array([piece.start for piece in parts], dtype=np.int64)
    edges = np.union1d(begins, np.flatnonzero(np.diff(is_marked)) + 1)
    owners = np.searchsorted(begins, edges, side="right") - 1
    limits = pairwise([*edges.tolist(), len(is_marked)])
    for (start, stop), owner in zip(limits, owners.tolist(), strict=True):
        piece = parts[owner]
        if not is_marked[start]:
            continue
        if piece.kind == "text":
            yield ContextPiece(kind="text", start=start, stop=stop)
        elif start == piece.start:
            yield piece


def _entered(
    sequence: SampleSequence, round_: int, index: Array, parts: Sequence[ContextPiece]
) -> Sequence[ContextPiece]:
    """Return what is in no earlier context: it stands right before the round."""
    if not round_:
        return parts
    return [*_marked(parts, index >= sequence.entered_at(round_))]


def _left(
    sequence: SampleSequence, round_: int, index: Array
) -> Sequence[ContextPiece]:
    if not round_ or round_ not in sequence.rewritten:
        return ()
    before = sequence.index_before(round_)
    is_gone = np.ones(len(sequence.ids), dtype=bool)
    is_gone[index] = False
    return [*_marked(_parts(before, sequence), is_gone[before])]


def sampler_prompts(batch: Batch, sample: int) -> dict[int, Array]:
    """Return the ids that the sampler read before rounds of a sample."""
    columns = batch.round_columns
    if SAMPLER_PROMPTS not in columns:
        return {}
    rows = np.flatnonzero(columns["sample"] == sample).tolist()
    return {
        int(columns["round"][row]): np.asarray(columns[SAMPLER_PROMPTS][row], np.int64)
        for row in rows
        if columns[SAMPLER_PROMPTS][row] is not None
    }


def _sampler_context(
    batch: Batch, sample: int, round_: int, sequence: SampleSequence
) -> Context:
    """Return the recorded context of the sampler.

    Its pictures are those of the training engine's context where as many fit its image
    tokens: a record has no pictures of its own.
    """
    prompts = sampler_prompts(batch, sample)
    if round_ not in prompts:
        raise missing_error(batch, SAMPLER_PROMPTS)
    trained = _parts(sequence.index(round_), sequence)
    shots = [piece.image for piece in trained if piece.image is not None]
    ids = prompts[round_]
    parts = _sampler_parts(ids, sequence, shots)
    before = np.empty(0, dtype=np.int64)
    if known := round_ - 1 in prompts:
        written = sequence.ids[sequence.starts[round_ - 1] : sequence.stops[round_ - 1]]
        before = np.concatenate([prompts[round_ - 1], written.astype(np.int64)])
    is_append = known and appends(before, ids)
    is_new, is_gone = np.ones(len(ids), dtype=bool), np.ones(len(before), dtype=bool)
    for at, place, size in shared_ranges(before, ids):
        is_gone[at : at + size], is_new[place : place + size] = False, False
    if is_append:
        is_new[:] = np.arange(len(ids)) >= len(before)
    return Context(
        sample=sample,
        round=round_,
        engine="rollout",
        ids=torch.from_numpy(ids),
        images=tuple(piece.image for piece in parts if piece.image is not None),
        follows="append" if is_append else "rewritten" if known else "first",
        entered=tuple(_marked(parts, is_new)),
        left=tuple(_marked(_cut(len(before), []), is_gone)),
        _pieces=tuple(parts),
        _tokenizer=batch.tokenizer,
    )


def _sampler_parts(
    ids: Array, sequence: SampleSequence, shots: Sequence[Screenshot | None]
) -> list[ContextPiece]:
    tokens = {int(sequence.ids[picture.start]) for picture in sequence.pictures}
    if len(tokens) != 1:
        return _cut(len(ids), [])
    is_image = np.concatenate([[0], ids == tokens.pop(), [0]])
    starts = np.flatnonzero(np.diff(is_image) == 1).tolist()
    stops = np.flatnonzero(np.diff(is_image) == -1).tolist()
    known = shots if len(shots) == len(starts) else [None] * len(starts)
    shown = [
        ContextPiece(kind="image", start=start, stop=stop, image=shot)
        for start, stop, shot in zip(starts, stops, known, strict=True)
    ]
    return _cut(len(ids), shown)


def _in_text(context: Context, batch: Batch, sequence: SampleSequence) -> Context:
    """Return a context of pieces of text as one of their characters."""
    round_, texts = context.round, sequence.texts
    own = [texts[piece] for piece in context.ids.tolist()]
    before = [texts[piece] for piece in sequence.index_before(round_)] if round_ else []
    images = [piece.image for piece in context.pieces if piece.image is not None]
    entered = [*context.entered]
    if batch.contexts is None:  # pictures have no pieces
        shots = (batch.images or ((),) * len(batch))[context.sample]
        images = [s for s in shots if s.round is not None and s.round <= round_]
        entered += [
            ContextPiece(kind="image", start=len(own), stop=len(own), image=shot)
            for shot in images
            if shot.round == round_
        ]
    return replace(
        context,
        engine="old",
        ids=torch.empty(0, dtype=torch.int64),
        images=tuple(images),
        entered=_in_characters(entered, own),
        left=_in_characters(context.left, before),
        _pieces=_in_characters(context.pieces, own),
        _tokenizer=None,
        _texts=own,
    )


def _in_characters(
    parts: Sequence[ContextPiece], texts: Sequence[str]
) -> tuple[ContextPiece, ...]:
    """Return ranges of characters in place of ranges of pieces of text."""
    ends = [0, *accumulate(map(len, texts))]
    return tuple(
        replace(part, start=ends[part.start], stop=ends[part.stop]) for part in parts
    )

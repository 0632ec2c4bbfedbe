"""What the model saw: the context of a round, as the page shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch, Context, ContextPiece
from rounddiag.batch.contexts import context_columns, kept_sequence
from rounddiag.batch.sample_sequence import SampleSequence
from rounddiag.text import pieces
from rounddiag.wording import pluralize

_NAMES = {"old": "training engine", "rollout": "sampler"}


def has_contexts(batch: Batch) -> bool:
    """Return whether contexts are shown: of texts alone where one was rewritten."""
    return batch.response_ids is not None or batch.contexts is not None


def context_labels(own: Batch, num_rounds: int) -> list[dict[str, Any] | None]:
    """Describe the context of each round of a batch of one sample.

    Returns
    -------
    list of dict or None
        `text`, such as "context 1,204 tokens, 2 pictures; 1 picture left", and
        `is_rewritten`. None where contexts are not shown.
    """
    if not has_contexts(own):
        return [None] * num_rounds
    columns = context_columns(own)
    shots = () if own.images is None else own.images[0]
    at = sorted(shot.round for shot in shots if shot.round is not None)
    if own.contexts is None and len(at) == len(shots) > 0:
        before = np.searchsorted(at, np.arange(num_rounds), side="right")
        columns.setdefault("num_context_images", before)
    rows = zip(*columns.values(), strict=True)
    counts = [dict(zip(columns, map(int, row), strict=True)) for row in rows]
    return [_label(own_counts, own.token_noun) for own_counts in counts]


def context_pictures(own: Batch, num_rounds: int) -> list[list[list[int]]]:
    """Return which pictures of a batch of one sample each round's context has.

    Pictures without a position are seen from their round on.

    Returns
    -------
    list of list of [int, int]
        For each round the ranges, start and stop, of their numbers, in the order of
        the context.
    """
    shots = () if own.images is None else own.images[0]
    if own.contexts is None:
        first = [num_rounds if shot.round is None else shot.round for shot in shots]
        seen = np.array(first, dtype=np.int64)
        return [_ranges(np.flatnonzero(seen <= at)) for at in range(num_rounds)]
    sequence = SampleSequence(own, 0)
    known = {id(shot): index for index, shot in enumerate(shots)}
    pictures = sequence.pictures
    starts = np.array([picture.start for picture in pictures], dtype=np.int64)
    numbers = np.array([known[id(picture.image)] for picture in pictures], np.int64)
    edges = [np.searchsorted(starts, sequence.ranges(at)) for at in range(num_rounds)]
    return [
        _ranges(np.concatenate([numbers[first:stop] for first, stop in own_edges]))
        for own_edges in edges
    ]


def _ranges(numbers: Array) -> list[list[int]]:
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return [[int(part[0]), int(part[-1]) + 1] for part in parts if len(part)]


def _label(counts: Mapping[str, int], token: str) -> dict[str, Any]:
    has = [pluralize(counts["num_context_tokens"], token)]
    if "num_context_images" in counts:
        has.append(pluralize(counts["num_context_images"], "picture"))
    left = [
        pluralize(counts[name], noun)
        for name, noun in (("num_left_tokens", token), ("num_left_images", "picture"))
        if counts.get(name)
    ]
    gone = f"; {', '.join(left)} left" if left else ""
    return {
        "text": f"context {', '.join(has)}{gone}",
        "is_rewritten": bool(counts["is_rewritten"]),
    }


def context_payload(batch: Batch, sample: int, round: int) -> dict[str, Any]:  # noqa: A002 as the page says
    """Return the contexts of a round: of both engines where they differ.

    Returns
    -------
    dict
        `engines`: for each its `name`, a `summary`, `parts` and what `left`. A part has
        its `kind`, `text` or the `index` of a picture, and whether it `entered`.
    """
    own = batch.context(sample, round)
    contexts = [own]
    for engine in batch.context_engines[1:]:
        other = batch.context(sample, round, engine)
        if not np.array_equal(other.ids, own.ids):
            contexts.append(other)
    shots = () if batch.images is None else batch.images[sample]
    known = {id(shot): index for index, shot in enumerate(shots)}
    before = {
        context.engine: batch.context(sample, round - 1, context.engine)
        for context in contexts
        if context.left
    }
    return {
        "engines": [
            {
                "name": _NAMES[context.engine] if len(contexts) > 1 else "",
                "summary": _summary(batch, context),
                "parts": [*_parts(batch, context, known)],
                "left": [
                    *_left(batch, context, before.get(context.engine), round, known)
                ],
            }
            for context in contexts
        ]
    }


def _summary(batch: Batch, context: Context) -> str:
    follows = {
        "first": "the first context",
        "append": "goes on from the context before",
        "rewritten": "rewritten since the round before",
    }
    sizes = [
        pluralize(context.num_tokens, batch.token_noun),
        pluralize(len(context.images), "picture"),
    ]
    return f"{', '.join(sizes)}: {follows[context.follows]}"


def _parts(
    batch: Batch, context: Context, known: Mapping[int, int]
) -> Iterator[dict[str, Any]]:
    """Yield the pieces of a context, text divided where something entered."""
    contents = _contents(context)
    is_new = np.zeros(len(contents), dtype=bool)
    new_pictures = set()
    if context.follows != "first":  # of the first one all is new
        for piece in context.entered:
            is_new[piece.start : piece.stop] = True
            new_pictures.add((piece.start, id(piece.image)))
    for piece in context.pieces:
        if piece.kind == "image":
            entered = (piece.start, id(piece.image)) in new_pictures
            yield _picture(piece, known, entered=entered)
            continue
        if piece.start == piece.stop:  # a message without text
            continue
        inside = is_new[piece.start : piece.stop]
        edges = piece.start + np.flatnonzero(np.diff(inside)) + 1
        for start, stop in pairwise([piece.start, *edges.tolist(), piece.stop]):
            text = _text(batch, contents[start:stop])
            yield {"kind": "text", "text": text, "entered": bool(is_new[start])}


def _left(
    batch: Batch,
    context: Context,
    before: Context | None,
    round_: int,
    known: Mapping[int, int],
) -> Iterator[dict[str, Any]]:
    """Yield what left: ranges of the context before and of what was written then."""
    if before is None:
        return
    sequence = kept_sequence(batch, context.sample)
    written = slice(sequence.starts[round_ - 1], sequence.stops[round_ - 1])
    contents: Array | str
    if batch.response_ids is None:
        contents = "".join([before.text or "", *sequence.texts[written]])
    else:
        contents = np.concatenate([before.ids.numpy(), sequence.ids[written]])
    for piece in context.left:
        if piece.kind == "image":
            yield _picture(piece, known, entered=False)
        else:
            text = _text(batch, contents[piece.start : piece.stop])
            yield {"kind": "text", "text": text, "entered": False}


def _contents(context: Context) -> Array | str:
    if len(context.ids):
        return context.ids.numpy()
    return context.text or ""


def _picture(
    piece: ContextPiece, known: Mapping[int, int], *, entered: bool
) -> dict[str, Any]:
    return {
        "kind": "image",
        "index": known.get(id(piece.image)),
        "num_tokens": piece.stop - piece.start,
        "entered": entered,
    }


def _text(batch: Batch, contents: Array | str) -> str:
    if isinstance(contents, str):
        return contents
    return "".join(pieces(contents, batch.tokenizer, visible_whitespace=False))

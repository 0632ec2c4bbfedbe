"""Batches of one step as one batch, end to end: the files of its ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from rounddiag.batch import Batch
from rounddiag.batch.layout import PER_SAMPLE, offsets_of
from rounddiag.errors import LoadError
from rounddiag.loaders.fields.mapping import not_measurable
from rounddiag.loaders.joining.copies import without_copies
from rounddiag.loaders.joining.end_to_end import (
    per_sample,
    per_token,
    prompts,
    round_columns,
    sample_columns,
)
from rounddiag.loaders.joining.merged_meta import merged_meta, sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def concatenate(batches: Iterable[Batch]) -> Batch:
    """Join batches of one step end to end.

    What only some of them have is left out and named in `meta["left_out"]`; but where
    it is one value a sample, the others get NaN or None, and where it is images, none.
    A sample that an earlier batch has too, under the same name and with the very same
    numbers, is left out and counted in `meta["num_dropped_rows"]`: tensor-parallel
    ranks write copies. Where `meta` differs, it is a mapping from source to value.

    Parameters
    ----------
    batches : iterable of Batch
        At least one. They are taken one by one, up to the first of another step.

    Returns
    -------
    Batch

    Raises
    ------
    LoadError
        If they are not all of the same step.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> concatenate([batch[:2], batch[2:3]])
    Batch(num_samples=3, num_rounds=6, num_tokens=82)
    """
    every = _of_one_step(batches)
    parts = without_copies(every)
    num_copies = sum(map(len, every)) - sum(map(len, parts))
    # A rank without samples lacks nothing; its file only has no field to show.
    parts = _divided_alike([part for part in parts if len(part)] or parts[:1])
    tokens = per_token([part.per_token for part in parts])
    fields = {**tokens, **prompts(parts), **per_sample(parts)}
    scores = per_token([part.scores for part in parts])
    kept = {name for name, value in fields.items() if value is not None} | scores.keys()
    lost = [name for part in parts for name in _fields(part) if name not in kept]
    return Batch(
        **fields,
        offsets=offsets_of(torch.cat([part.offsets.diff() for part in parts])),
        lengths=torch.cat([part.lengths for part in parts]),
        scores=scores,
        step=_step(every),
        tokenizer=_tokenizer(parts),
        sample_columns=sample_columns(parts),
        round_columns=round_columns(parts),
        meta={
            **merged_meta(every, num_copies, lost),
            **not_measurable(tokens),
        },
    )


def _of_one_step(batches: Iterable[Batch]) -> list[Batch]:
    parts: list[Batch] = []
    steps: dict[int, Batch] = {}
    for batch in batches:
        parts.append(batch)
        if batch.step is not None:
            steps.setdefault(batch.step, batch)
        if len(steps) > 1:
            named = zip(steps, sources(list(steps.values())), strict=True)
            told = [f"step {step} in {name}" for step, name in named]
            raise LoadError.build(
                expected="the files of one step",
                found=" and ".join(told),
                advice="Pass the folder or the glob of one step.",
            )
    return parts


def _divided_alike(parts: list[Batch]) -> list[Batch]:
    """Give `round_ids` that divide nothing to those that have none, if others do."""
    if all(part.round_ids is None for part in parts):
        return parts
    return [
        replace(part, round_ids=torch.zeros_like(part.response_ids))
        if part.round_ids is None
        else part
        for part in parts
    ]


def _step(parts: Sequence[Batch]) -> int | None:
    return next((part.step for part in parts if part.step is not None), None)


def _tokenizer(parts: Sequence[Batch]) -> object | None:
    """Return the one that all of them have, where they have any."""
    found = [part.tokenizer for part in parts if part.tokenizer is not None]
    is_one = all(tokenizer == found[0] for tokenizer in found)
    return found[0] if found and is_one else None


def _fields(part: Batch) -> list[str]:
    """Return the optional fields that a batch has."""
    optional = ("prompt_ids", "rewards", *PER_SAMPLE)
    here = [name for name in optional if getattr(part, name) is not None]
    return [*part.per_token, *part.scores, *here]

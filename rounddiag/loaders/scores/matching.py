"""Whether entries are the batch's own tokens: each generated one, once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.batch.given import need_batch
from rounddiag.checks.places import place_of
from rounddiag.errors import BatchError

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.scores.entries import Entries

    Array = np.ndarray[Any, Any]


def need_ids(batch: Batch, advice: str) -> None:
    """Raise a BatchError for no batch, and for one whose file left token ids out."""
    need_batch(batch)
    if batch.is_redacted:
        raise BatchError.build(
            expected="a batch with its token ids",
            found="one that was saved with `redact=True`",
            advice=advice,
        )


def check_entries(batch: Batch, entries: Entries) -> None:
    """Raise a BatchError unless the entries are the batch's tokens.

    Raises
    ------
    BatchError
        For the first token whose id differs, that is there twice, or that is missing.
    """
    flat = entries.flat_positions(batch)
    _check_ids(batch, entries, flat)
    counts = np.bincount(flat, minlength=len(batch.response_ids))
    twice = np.flatnonzero(counts > 1)
    if len(twice):
        raise BatchError.build(
            expected=f"one value for {place_of(batch, int(twice[0]))}",
            found=f"{counts[twice[0]]}",
            advice="Drop the rows that are there again.",
        )
    _check_complete(batch, counts)


def _check_ids(batch: Batch, entries: Entries, flat: Array) -> None:
    expected = batch.response_ids.cpu().numpy()[flat]
    differs = np.flatnonzero(entries.token_ids != expected)
    if len(differs):
        first = differs[0]
        place = place_of(batch, int(flat[first]))
        raise BatchError.build(
            expected=f"token id {expected[first]} at {place}",
            found=f"{entries.token_ids[first]}, and {len(differs) - 1} others differ",
            advice="Rescore the ids that `rounddiag.export_rescore` writes; text that"
            " is tokenised again gives others.",
        )


def _check_complete(batch: Batch, counts: Array) -> None:
    generated = batch.response_mask.cpu().numpy() != 0
    missing = np.flatnonzero(generated & (counts == 0))
    if len(missing):
        first = missing[0]
        token = batch.response_ids[first].item()
        raise BatchError.build(
            expected=f"a value for token id {token} at {place_of(batch, int(first))}",
            found=f"none, nor for {len(missing) - 1} other generated tokens",
            advice="Rescore all samples, or attach to a selection of the batch.",
        )

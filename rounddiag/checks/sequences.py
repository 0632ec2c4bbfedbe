"""Prompt and response of a sample, as the one text that the model saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.checks.contract import UntestableError
from rounddiag.segmentation import find_rounds

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.segmentation import Rounds

    Array = np.ndarray[Any, Any]


def mask_runs(batch: Batch) -> Rounds:
    """Return the runs of the mask, which `round_ids` may divide into several rounds."""
    if batch.round_ids is None:
        return batch.rounds
    return find_rounds(batch.response_mask, batch.offsets)


def prompt_lengths(batch: Batch) -> list[int]:
    """Return how many tokens stand before each response.

    Raises
    ------
    UntestableError
        If the batch has no prompts.
    """
    if batch.prompt_offsets is None:
        raise UntestableError(field="prompt_ids")
    lengths: list[int] = batch.prompt_offsets.diff().tolist()
    return lengths


def sequence(batch: Batch, sample: int) -> Array:
    """Return the token ids of a sample's prompt and response.

    Raises
    ------
    UntestableError
        If the batch has no prompts.
    """
    if batch.prompt_ids is None:
        raise UntestableError(field="prompt_ids")
    return known_sequence(batch, sample)[1]


def known_sequence(batch: Batch, sample: int) -> tuple[int, Array]:
    """Return the length of a sample's prompt, and the ids of prompt and response.

    Without prompts the length is 0, and the ids are those of the response alone.
    """
    begin = int(batch.offsets[sample])
    ids = batch.response_ids[begin : begin + int(batch.lengths[sample])]
    first, stop = 0, 0
    if batch.prompt_ids is not None and batch.prompt_offsets is not None:
        first, stop = batch.prompt_offsets[sample : sample + 2].tolist()
        ids = torch.cat([batch.prompt_ids[first:stop], ids])
    return stop - first, ids.cpu().numpy()


def runs_of(ids: Array, token: int) -> list[tuple[int, int]]:
    """Return start and length of each maximal run of one token.

    Examples
    --------
    >>> runs_of(np.array([9, 9, 1, 9]), 9)
    [(0, 2), (3, 1)]
    """
    edges = np.flatnonzero(np.diff(ids == token, prepend=False, append=False))
    return [(int(a), int(b - a)) for a, b in zip(edges[::2], edges[1::2], strict=True)]

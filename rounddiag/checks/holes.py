"""Holes that a rejection of single tokens leaves in the response mask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.checks.contract import Contract, Fault
from rounddiag.checks.places import fault_at

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag.batch import Batch


def find_holes(batch: Batch) -> Tensor:
    """Find single masked tokens between two rounds that the sampler wrote all the same.

    A trainer that rejects tokens may write 0 into the mask it saves (verl does so to
    `response_mask`): a round falls apart there, and the worst tokens are gone. Such a
    token has 1s on both sides and a log-probability by the sampling engine, finite and
    below 0; an observation has none, or the 0 that fills it.

    Parameters
    ----------
    batch : Batch

    Returns
    -------
    Tensor of int64, shape (num_holes,)
        Indices into the flat per-token tensors, rising. Where `round_ids` tell two
        rounds apart, what stands between them is no hole.

    Examples
    --------
    >>> import torch
    >>> from rounddiag import Batch
    >>> batch = Batch.from_padded(
    ...     response_ids=torch.tensor([[5, 6, 7, 8, 9]]),
    ...     response_mask=torch.tensor([[1, 0, 1, 0, 1]]),
    ...     rollout_log_probs=torch.tensor([[-1.0, -9.0, -1.0, 0.0, -1.0]]),
    ...     old_log_probs=torch.tensor([[-1.0, -1.0, -1.0, -1.0, -1.0]]),
    ... )
    >>> find_holes(batch)
    tensor([1])
    """
    rounds = batch.rounds
    after = rounds.start + rounds.num_tokens
    same_sample = rounds.sample[1:] == rounds.sample[:-1]
    between = after[:-1][same_sample & (rounds.start[1:] == after[:-1] + 1)]
    if batch.round_ids is not None:
        same_round = batch.round_ids[between - 1] == batch.round_ids[between + 1]
        between = between[same_round]
    log_probs = batch.rollout_log_probs[between]
    return between[(log_probs < 0) & log_probs.isfinite()]


def _holes(batch: Batch) -> Fault | None:
    return fault_at(batch, find_holes(batch), "masked between two of a round")


NO_HOLES = Contract("the mask has no holes", "response_mask", _holes)

"""Rounds that the mask alone does not tell: adjacent turns, holes of a rejection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch

from rounddiag.checks.holes import find_holes
from rounddiag.errors import LoadError
from rounddiag.loaders.joining.renumbering import with_rounds

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

    from rounddiag.batch import Batch

_MOST = 1 << 31  # of token ids


def divide_after(batch: Batch, stop_tokens: Collection[int]) -> Batch:
    """Divide runs of generated tokens after each of these tokens, through `round_ids`.

    Two turns without an observation between them are one run of the mask; a stop token
    inside the run says where the first one ended.

    Parameters
    ----------
    batch : Batch
    stop_tokens : collection of int
        Token ids that end a turn.

    Returns
    -------
    Batch
        `meta["stop_tokens"]` counts the divisions. Where the file has `round_ids`, they
        go on dividing too.

    Raises
    ------
    LoadError
        If a stop token is no token id.

    Examples
    --------
    >>> from rounddiag import Batch
    >>> zeros = torch.zeros(1, 4)
    >>> batch = Batch.from_padded(
    ...     response_ids=torch.tensor([[5, 2, 6, 2]]),
    ...     response_mask=torch.ones(1, 4),
    ...     rollout_log_probs=zeros,
    ...     old_log_probs=zeros,
    ... )
    >>> divide_after(batch, [2]).rounds.num_tokens.tolist()
    [2, 2]
    """
    ids = _listed(stop_tokens)
    if not ids:
        return batch
    if not all(isinstance(token, Integral) and 0 <= token < _MOST for token in ids):
        raise LoadError.build(
            key="stop_tokens",
            expected="a list of token ids",
            found=f"{stop_tokens}"[:80],
            advice="Pass the numbers: `tokenizer.convert_tokens_to_ids(...)`.",
        )
    is_stop = torch.isin(batch.response_ids, torch.tensor(ids, dtype=torch.int64))
    after = is_stop.nonzero()[:, 0] + 1
    done = with_rounds(batch, round_ids=division_ids(batch, after))
    more = done.num_rounds - batch.num_rounds
    told = f"{more} runs divided after {', '.join(map(str, ids))}"
    return replace(done, meta={**done.meta, "stop_tokens": told})


def _listed(given: Any) -> list[int]:  # noqa: ANN401 what should be a list
    """Return what may be token ids; -1, which is none, where it is no list."""
    return [*given] if isinstance(given, Iterable) else [-1]


def with_holes(batch: Batch, *, fill: bool) -> Batch:
    """Report the holes that a rejection left in the mask; fill them where asked to.

    Parameters
    ----------
    batch : Batch
    fill : bool
        Whether to put 1 into the holes. The mask of the file is then the `loss_mask`,
        where it had none of its own.

    Returns
    -------
    Batch
        `meta["holes"]` says how many there are, if any.
    """
    holes = find_holes(batch)
    if not len(holes):
        return batch
    told = f"{len(holes)} found; load(..., fill_holes=True) fills them"
    if fill:
        told = f"{len(holes)} filled"
        mask = batch.response_mask.clone()
        mask[holes] = 1
        loss_mask = batch.response_mask if batch.loss_mask is None else batch.loss_mask
        batch = with_rounds(batch, response_mask=mask, loss_mask=loss_mask)
    return replace(batch, meta={**batch.meta, "holes": told})


def division_ids(batch: Batch, breaks: Tensor) -> Tensor:
    """Return `round_ids` that change where those of the batch do, and at `breaks`."""
    changes = torch.zeros(len(batch.response_ids) + 1, dtype=torch.int32)
    changes[breaks] = 1
    if batch.round_ids is not None:
        changes[1:-1] |= batch.round_ids[1:] != batch.round_ids[:-1]
    return changes[:-1].cumsum(0, dtype=torch.int32)

"""Where in a batch something is: said so that one can go there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from rounddiag.checks.contract import Fault, UntestableError
from rounddiag.checks.words import count, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from rounddiag.batch import Batch

_SHOWN = 3  # places and samples in a sentence
# Positions a block: what is computed of it stays in the cache, and torch takes one
# thread; where other work has the cores, several wait for each other.
_BLOCK = 1 << 15


class Place(NamedTuple):
    """One token: its round is the one it is in, or the last before it."""

    sample: int
    round: int
    position: int

    def __str__(self) -> str:
        return f"sample {self.sample} round {self.round} position {self.position}"


def place_of(batch: Batch, index: int) -> Place:
    """Return where the token with this index in the flat tensors is."""
    sample = int(torch.searchsorted(batch.offsets, index, right=True)) - 1
    mine = batch.rounds.start[batch.rounds.sample == sample]
    number = max(int((mine <= index).sum()) - 1, 0)
    return Place(sample, number, index - int(batch.offsets[sample]))


def samples_of(batch: Batch, indices: Tensor) -> Tensor:
    """Return the sample of each index in the flat tensors."""
    return torch.searchsorted(batch.offsets, indices, right=True) - 1


def fault_at(batch: Batch, indices: Tensor, what: str) -> Fault | None:
    """Name the tokens that break a contract; None where there is none."""
    if len(indices) == 0:
        return None
    samples = samples_of(batch, indices).unique().tolist()
    first = [str(place_of(batch, index)) for index in indices[:_SHOWN].tolist()]
    detail = (
        f"{count(len(indices), 'token')} {what}, in"
        f" {count(len(samples), 'sample')}: {listed(first, len(indices), most=_SHOWN)}"
    )
    return Fault(detail, tuple(samples))


def fault_in(samples: Sequence[int], what: str) -> Fault | None:
    """Name the samples that break a contract; None where there is none."""
    if not samples:
        return None
    first = listed(samples, len(samples), most=_SHOWN)
    word = "sample" if len(samples) == 1 else "samples"
    return Fault(
        f"{count(len(samples), 'sample')} {what}: {word} {first}", tuple(samples)
    )


def need_tokens(batch: Batch) -> None:
    """Raise UntestableError where the model wrote nothing."""
    if len(batch.rounds) == 0:
        why = "the batch has no generated token"
        raise UntestableError(field="response_mask", why=why)


def need_ids(batch: Batch) -> None:
    """Raise UntestableError where the token ids were left out of a file."""
    if batch.is_redacted:
        why = "the token ids were left out of the file (redacted)"
        raise UntestableError(field="response_ids", why=why)


def generated_where(
    batch: Batch, condition: Callable[..., Tensor], *fields: Tensor
) -> Tensor:
    """Return the indices of the generated tokens for which a condition holds.

    Parameters
    ----------
    batch : Batch
    condition : callable
        Gets a part of each of the fields and gives flags.
    *fields : Tensor
        Per-token fields of the batch.

    Raises
    ------
    UntestableError
        If the model wrote nothing.
    """
    need_tokens(batch)
    found = list(blocks_where(batch.response_mask, condition, *fields))
    return torch.cat(found) if found else batch.offsets.new_empty(0)


def blocks_where(
    mask: Tensor, condition: Callable[..., Tensor], *fields: Tensor
) -> Iterator[Tensor]:
    """Give the indices where the mask is 1 and a condition holds, a block at a time."""
    size = _BLOCK if mask.device.type == "cpu" else max(len(mask), 1)
    for begin in range(0, len(mask), size):
        part = slice(begin, begin + size)
        flags = condition(*(values[part] for values in fields))
        if flags.any() and (flags := flags & (mask[part] != 0)).any():
            yield flags.nonzero()[:, 0] + begin

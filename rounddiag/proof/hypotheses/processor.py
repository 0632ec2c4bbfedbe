"""`Processor`: a step of a sampler, from logits and the ids before to other logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Seen:
    """The ids before some tokens of a sample, for penalties.

    Attributes
    ----------
    ids: Tensor of int64, shape (length,). The ids of the sample.
    at: Tensor of int64, shape (n,). Indices of the tokens in `ids`.
    begin: Tensor of int64, shape (n,). Where the round of each token begins: what is
        before is the prompt.
    size: The number of ids that have a logit.
    names: Tensor of int64, optional. Where logits of a part of the vocabulary are kept:
        the ids of the first columns; `ids` are columns then.
    weights: Tensor of shape (n, size), optional. And the logarithm of how many ids each
        column stands for.
    """

    ids: Tensor
    at: Tensor
    begin: Tensor
    size: int
    names: Tensor | None = None
    weights: Tensor | None = None

    @cached_property
    def output(self) -> Tensor:
        """How often each id was written before in the round, shape (n, size)."""
        return self._count(self.begin, self.at)

    @cached_property
    def prompt(self) -> Tensor:
        """How often each id stands before the round, shape (n, size)."""
        return self._count(torch.zeros_like(self.begin), self.begin)

    def column(self, token_id: int) -> int:
        """Return the column of the logit of an id that has one of its own."""
        if self.names is None:
            return token_id
        return int(torch.searchsorted(self.names, token_id))

    def weigh(self, logits: Tensor) -> Tensor:
        """Return logits with the weights of their columns."""
        return logits if self.weights is None else logits + self.weights

    def _count(self, begin: Tensor, stop: Tensor) -> Tensor:
        counts = torch.zeros(len(begin), self.size, device=self.ids.device)
        ids = self.ids.clamp(max=self.size - 1)
        last = (-1, -1)
        for row, (first, end) in enumerate(
            zip(begin.tolist(), stop.tolist(), strict=True)
        ):
            if first == last[0] and end >= last[1]:
                counts[row] = counts[row - 1]
                first_new = last[1]
            else:
                first_new = first
            added = ids[first_new:end]
            counts[row].index_add_(0, added, torch.ones(len(added), device=ids.device))
            last = (first, end)
        return counts


Step = Callable[[Tensor, Seen, float], Tensor]
"""From logits of shape (n, size), the ids before, and a number to other logits."""


@dataclass(frozen=True)
class Processor:
    """A step of a sampler, with its number; `rank` is its place among several.

    It needs the logits of `ids`, beside those of the sample and the likeliest.
    """

    step: Step
    value: float
    rank: int
    ids: tuple[int, ...] = ()

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return other logits."""
        return self.step(logits, seen, self.value)

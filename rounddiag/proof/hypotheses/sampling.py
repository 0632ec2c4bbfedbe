"""What a sampler does to logits: temperature, truncation, penalties, a bias.

None of these needs a pass of its own: the logits of one pass are enough. The order in
which several are applied is that of vLLM: penalties and biases, temperature, min-p,
top-k, top-p. `order_families` has SGLang's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.proof.hypotheses.hypothesis import Hypothesis


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
        """Return the column of the logit of an id that the sample has."""
        if self.names is None:
            return token_id
        return int(torch.searchsorted(self.names, token_id))

    def weigh(self, logits: Tensor) -> Tensor:
        """Return logits with the weights of their columns."""
        return logits if self.weights is None else logits + self.weights

    def _count(self, begin: Tensor, stop: Tensor) -> Tensor:
        found = torch.zeros(len(begin), self.size, device=self.ids.device)
        ids = self.ids.clamp(max=self.size - 1)
        last = (-1, -1)
        for row, (first, end) in enumerate(
            zip(begin.tolist(), stop.tolist(), strict=True)
        ):
            if first == last[0] and end >= last[1]:
                found[row] = found[row - 1]
                first_new = last[1]
            else:
                first_new = first
            added = ids[first_new:end]
            found[row].index_add_(0, added, torch.ones(len(added), device=ids.device))
            last = (first, end)
        return found


class Processor(Protocol):
    """Changes logits of shape (n, size) as a sampler does."""

    @property
    def rank(self) -> int:
        """Its place in the order in which several are applied."""
        ...

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return other logits."""
        ...


@dataclass(frozen=True)
class Temperature:
    """Logits divided by a temperature."""

    value: float
    rank: int = 1

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return the tempered logits."""
        del seen
        return logits / self.value


@dataclass(frozen=True)
class MinP:
    """No token less likely than a share of the likeliest one."""

    value: float
    rank: int = 3

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return logits, minus infinity where a token is left out."""
        del seen
        least = logits.amax(-1, keepdim=True) + float(np.log(self.value))
        return logits.masked_fill(logits < least, -torch.inf)


@dataclass(frozen=True)
class TopK:
    """The k likeliest tokens only."""

    value: float
    rank: int = 4

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return logits, minus infinity where a token is left out."""
        del seen
        k = min(round(self.value), logits.shape[-1])
        least = logits.topk(k).values[..., -1:]
        return logits.masked_fill(logits < least, -torch.inf)


@dataclass(frozen=True)
class TopP:
    """The likeliest tokens that have a share of the probability together."""

    value: float
    rank: int = 5

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return logits, minus infinity where a token is left out."""
        order = logits.sort(-1, descending=True)
        chances = seen.weigh(logits).softmax(-1).gather(-1, order.indices)
        gone = chances.cumsum(-1) - chances > self.value
        return logits.masked_fill(
            torch.zeros_like(gone).scatter(-1, order.indices, gone), -torch.inf
        )


@dataclass(frozen=True)
class RepetitionPenalty:
    """Logits of ids seen before: positive ones divided, negative ones multiplied."""

    value: float
    counts_prompt: bool = True
    rank: int = 0

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return the penalised logits."""
        known = seen.output > 0
        if self.counts_prompt:
            known = known | (seen.prompt > 0)
        lower = torch.where(logits > 0, logits / self.value, logits * self.value)
        return torch.where(known, lower, logits)


@dataclass(frozen=True)
class PresencePenalty:
    """A constant off the logits of ids that the round has already."""

    value: float
    rank: int = 0

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return the penalised logits."""
        return logits - self.value * (seen.output > 0)


@dataclass(frozen=True)
class FrequencyPenalty:
    """A constant off the logits for each time that the round has the id already."""

    value: float
    rank: int = 0

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return the penalised logits."""
        return logits - self.value * seen.output


@dataclass(frozen=True)
class LogSoftmaxBfloat16:
    """Logits and log-probs rounded to bfloat16, as by a trainer that never upcasts."""

    rank: int = 7

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return log-probs."""
        if seen.weights is None:
            return logits.bfloat16().log_softmax(-1).float()
        rounded = logits.bfloat16().float()
        total = seen.weigh(rounded).logsumexp(-1, keepdim=True)
        return (rounded - total).bfloat16().float()


@dataclass(frozen=True)
class Bias:
    """A constant added to the logit of one id."""

    token_id: int
    value: float
    rank: int = 0

    def __call__(self, logits: Tensor, seen: Seen) -> Tensor:
        """Return the biased logits."""
        added = torch.zeros(logits.shape[-1], device=logits.device)
        added[seen.column(self.token_id)] = self.value
        return logits + added


def chosen_log_probs(
    logits: Tensor, tokens: Tensor, seen: Seen, processors: Sequence[Processor] = ()
) -> Tensor:
    """Return the log-probs of tokens, or of their columns, after processors."""
    values = logits.float()
    for processor in sorted(processors, key=lambda one: one.rank):
        before, values = values, processor(values, seen)
        values = _keep_ties(before, values, tokens)
    if not any(isinstance(one, LogSoftmaxBfloat16) for one in processors):
        values = values - seen.weigh(values).logsumexp(-1, keepdim=True)
    return values.gather(-1, tokens[:, None])[:, 0]


def _keep_ties(before: Tensor, after: Tensor, tokens: Tensor) -> Tensor:
    """Let a token just below the border take the place of the least likely one kept.

    The sampler's numerics order nearly equal logits anew: those within one step of
    bfloat16. A token that is further below was not kept, and stays left out.
    """
    chosen = tokens[:, None]
    own = before.gather(-1, chosen)
    kept = after.masked_fill(after == -torch.inf, torch.inf)
    last = kept.argmin(-1, keepdim=True)
    border = before.gather(-1, last)
    lost = after.gather(-1, chosen) == -torch.inf
    lost &= own >= border - border.abs() * _STEP
    if not lost.any():
        return after
    swapped = after.scatter(-1, last, -torch.inf)
    swapped = swapped.scatter(-1, chosen, own)
    return torch.where(lost, swapped, after)


_STEP = 2.0**-7  # of bfloat16, as a share of the value


@dataclass(frozen=True, eq=False)
class Family:
    """Hypotheses that differ in one number, which is fitted.

    Attributes
    ----------
    name, cause, says: As of `Hypothesis`; `says` has a place for the number.
    make: From the number to a processor.
    grid: Where the search begins.
    is_continuous: Whether the number is refined between the values of the grid.
    is_ordered: Whether whole numbers between them are tried.
    """

    name: str
    cause: str
    says: str
    make: Callable[[float], Processor]
    grid: Sequence[float]
    is_continuous: bool = False
    is_ordered: bool = False

    def at(self, value: float) -> Hypothesis:
        """Return the hypothesis of one number."""
        return Hypothesis(
            name=self.name,
            cause=self.cause,
            says=self.says.format(f"{value:.4g}"),
            processor=self.make(value),
            needs=frozenset({"logits"}),
            excludes=self.cause == "truncated_sampling",
        )


_T = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)
_P = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995)
_K = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 25, 30, 40, 50, 64, 80, 100, 200)
_MIN_P = (0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3)
FAMILIES: tuple[Family, ...] = (
    Family(
        "temperature",
        "temperature",
        "temperature {}",
        Temperature,
        (*_T, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0),
        is_continuous=True,
    ),
    Family(
        "top_p",
        "truncated_sampling",
        "the nucleus of top-p {} only",
        TopP,
        _P,
    ),
    Family(
        "top_k",
        "truncated_sampling",
        "the {} likeliest tokens only",
        TopK,
        _K,
        is_ordered=True,
    ),
    Family(
        "min_p",
        "truncated_sampling",
        "min-p {}",
        MinP,
        _MIN_P,
    ),
    Family(
        "repetition_penalty",
        "logit_processor",
        "a repetition penalty of {} on prompt and output",
        RepetitionPenalty,
        (1.01, 1.02, 1.03, 1.05, 1.08, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0),
        is_continuous=True,
    ),
    Family(
        "repetition_penalty_of_output",
        "logit_processor",
        "a repetition penalty of {} on the output only",
        lambda value: RepetitionPenalty(value, counts_prompt=False),
        (1.01, 1.02, 1.03, 1.05, 1.08, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0),
        is_continuous=True,
    ),
    Family(
        "presence_penalty",
        "logit_processor",
        "a presence penalty of {}",
        PresencePenalty,
        (-0.5, -0.2, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0),
        is_continuous=True,
    ),
    Family(
        "frequency_penalty",
        "logit_processor",
        "a frequency penalty of {}",
        FrequencyPenalty,
        (-0.5, -0.2, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0),
        is_continuous=True,
    ),
)

# SGLang takes each of min-p, top-k and top-p of the whole distribution, vLLM takes
# top-p of what the others left: the same numbers keep other tokens.
_TOP_P_FIRST = Family(
    "top_p_first",
    "truncated_sampling",
    "the nucleus of top-p {} of the whole distribution, as SGLang takes it",
    lambda value: TopP(value, rank=2),
    _P,
)
_TOP_K_LAST = Family(
    "top_k_last",
    "truncated_sampling",
    "the {} likeliest tokens only, beside top-p as SGLang takes it",
    lambda value: TopK(value, rank=6),
    _K,
)
_MIN_P_LAST = Family(
    "min_p_last",
    "truncated_sampling",
    "min-p {}, beside top-p as SGLang takes it",
    lambda value: MinP(value, rank=6),
    _MIN_P,
)


def order_families(chain: Sequence[Hypothesis]) -> tuple[Family, ...]:
    """Return the families that truncate in SGLang's order beside what holds already."""
    processors = [one.processor for one in chain]
    if any(isinstance(one, TopP) for one in processors):
        return _TOP_K_LAST, _MIN_P_LAST
    if any(isinstance(one, TopK | MinP) for one in processors):
        return (_TOP_P_FIRST,)
    return ()


def bias_families(token_ids: Array, residuals: Array, most: int = 3) -> list[Family]:
    """Return a family for each id that differs most, of those that occur often."""
    known = np.isfinite(residuals)
    ids, code = np.unique(token_ids[known], return_inverse=True)
    if not len(ids):
        return []
    number = np.bincount(code)
    total = np.abs(np.bincount(code, weights=residuals[known]))
    weight = np.where(number >= _LEAST_OCCURRENCES, total / np.sqrt(number), 0)
    best = np.argsort(-weight)[:most]
    return [
        Family(
            f"bias_of_{ids[i]}",
            "logit_processor",
            f"a bias of {{}} on the logit of id {ids[i]}",
            lambda value, token=int(ids[i]): Bias(token, value),  # type: ignore[misc]
            (-8, -4, -2, -1, -0.5, 0.5, 1, 2, 4, 8),
            is_continuous=True,
        )
        for i in best
        if weight[i] > 0
    ]


_LEAST_OCCURRENCES = 4

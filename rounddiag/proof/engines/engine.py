"""What every engine does: score requests; some also give logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.errors import LoadError
from rounddiag.proof.hypotheses.hypothesis import Need
from rounddiag.proof.hypotheses.processor import Processor, Seen
from rounddiag.proof.hypotheses.sampling import chosen_log_probs
from rounddiag.proof.trajectory import Request, Samples, Trajectory

ELEMENTS = 2**24  # logits that are held at once: 64 MB in float32
_LEAST_CHUNK = 8  # tokens
_WHOLE = 2**12  # ids: logits of a smaller vocabulary are kept as they are
_TOP = 256  # likeliest ids of a token that are kept
_WIDTH = 0.05  # nats of a bin of the others: its mean errs by width^2 / 24 of its mass
_BINS = 600  # 30 nats below the likeliest: what is below has no mass


@dataclass(frozen=True, eq=False)
class TopTokens:
    """The likeliest tokens at each of n places, beside the token of the batch.

    Attributes
    ----------
    ids, log_probs: Of the likeliest tokens, the first one first; shape (n, number).
        Where fewer are known, -1 and NaN.
    own, ranks: Log-prob and rank of the batch's token, shape (n,); rank 1 is likeliest,
        -1 is unknown.
    """

    ids: Array
    log_probs: Array
    own: Array
    ranks: Array


@dataclass(eq=False)
class Readout:
    """The hidden states of a pass at the scored tokens, from which logits follow.

    Attributes
    ----------
    hidden: Tensor, shape (n, width)
    head: From hidden states to logits.
    tokens: Tensor of int64, shape (n,). The scored tokens.
    seen: The ids before them.
    """

    hidden: Tensor
    head: Callable[[Tensor], Tensor]
    tokens: Tensor
    seen: Seen
    _kept: dict[tuple[int, ...], Any] = field(default_factory=dict, repr=False)

    def log_probs(self, processors: Sequence[Processor] = ()) -> Array:
        """Return the log-probs of the tokens after processors, shape (n,)."""
        if not processors:
            return self._plain[0]
        ids = tuple(token for each in processors for token in each.ids)
        if ids not in self._kept:
            self._kept[ids] = self._keep(ids)
        logits, columns, seen = self._kept[ids]
        chosen = chosen_log_probs(logits, columns, seen, processors)
        return chosen.double().numpy()

    def spread(self) -> Array:
        """Return how much noise of the logits moves each log-prob, shape (n,).

        sqrt((1 - p)^2 + sum of the other p^2): the standard deviation of the log-prob
        when every logit has independent noise of 1 nat.
        """
        return self._plain[1]

    def top_tokens(self, number: int) -> TopTokens:
        """Return the likeliest tokens at the place of each token."""
        number = min(number, self.seen.size)

        def compute(logits: Tensor, rows: Tensor) -> Tensor:
            tokens = self.tokens[rows].to(logits.device)
            own = logits.gather(-1, tokens[:, None])
            total = logits.logsumexp(-1, keepdim=True)
            top = logits.topk(number)
            rank = 1 + (logits > own).sum(-1, keepdim=True)
            return torch.cat([top.indices, top.values - total, own - total, rank], -1)

        columns = self._by_chunks(compute).double().numpy()
        ids, log_probs, own, rank = np.split(columns, [number, 2 * number, -1], -1)
        return TopTokens(ids.astype(int), log_probs, own[:, 0], rank[:, 0].astype(int))

    def divergence(self, other: Readout) -> Array:
        """Return KL(self || other) at each token, in nats, shape (n,)."""

        def compute(logits: Tensor, rows: Tensor) -> Tensor:
            mine = logits.log_softmax(-1)
            theirs = other.head(other.hidden[rows]).float().log_softmax(-1)
            return (mine.exp() * (mine - theirs)).sum(-1, keepdim=True)

        return self._by_chunks(compute).double().numpy()[:, 0]

    @cached_property
    def _plain(self) -> tuple[Array, Array]:
        """Log-probs and spreads: from one look at all logits."""

        def compute(logits: Tensor, rows: Tensor) -> Tensor:
            tokens = self.tokens[rows].to(logits.device)
            own = logits.gather(-1, tokens[:, None])[:, 0]
            total = logits.logsumexp(-1)
            square = (logits.mul_(2).logsumexp(-1) - 2 * total).exp()
            chance = (own - total).exp()
            others = (square - chance.square()).clamp(min=0)
            return torch.stack(
                [own - total, ((1 - chance).square() + others).sqrt()], -1
            )

        columns = self._by_chunks(compute).double().numpy()
        return columns[:, 0], columns[:, 1]

    def _keep(self, more: tuple[int, ...]) -> tuple[Tensor, Tensor, Seen]:
        """Return logits that processors need, columns of tokens, ids before them.

        The ids that the sample has and `more`, the likeliest others of each token, and
        the rest in bins of their logits. Of a small vocabulary all.
        """
        size = self.seen.size
        if size <= _WHOLE:
            logits = self._by_chunks(lambda logits, _: logits)
            seen = replace(self.seen, ids=self.seen.ids.cpu())
            return logits, self.tokens, seen
        own = self.seen.ids.cpu()
        names = torch.cat([own, own.new_tensor(more)]).unique()
        ids, number = torch.searchsorted(names, own), len(names)

        def compute(logits: Tensor, rows: Tensor) -> Tensor:
            del rows
            own = logits[:, names]
            top = logits.amax(-1, keepdim=True)
            logits[:, names] = -torch.inf
            others = logits.topk(_TOP)
            logits.scatter_(-1, others.indices, -torch.inf)
            at = ((top - logits) / _WIDTH).clamp(0, _BINS).long()
            inside = torch.isfinite(logits)
            counts = torch.zeros(len(logits), _BINS + 1, device=logits.device)
            sums = counts.scatter_add(-1, at, logits.where(inside, 0))
            counts = counts.scatter_add(-1, at, inside.float())
            means = torch.where(counts > 0, sums / counts.clamp(min=1), -torch.inf)
            return torch.cat([own, others.values, means, counts.log()], -1)

        columns = self._by_chunks(compute)
        logits, counts = columns.split([columns.shape[-1] - _BINS - 1, _BINS + 1], -1)
        weights = torch.zeros_like(logits)
        weights[:, number + _TOP :] = counts.clamp(min=0)
        seen = Seen(
            ids, self.seen.at, self.seen.begin, logits.shape[-1], names, weights
        )
        return logits, torch.searchsorted(names, self.tokens), seen

    @torch.inference_mode()
    def _by_chunks(self, compute: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        number = len(self.tokens)
        parts: list[Tensor] = []
        begin, size = 0, min(max(ELEMENTS // self.seen.size, _LEAST_CHUNK), number)
        while begin < number or not parts:
            rows = torch.arange(begin, min(begin + size, number))
            try:
                logits = self.head(self.hidden[rows]).float()
                parts.append(compute(logits, rows).float().cpu())
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if size <= _LEAST_CHUNK:
                    work = f"the logits of {size} tokens"
                    raise memory_error(work) from error
                size = max(size // 4, _LEAST_CHUNK)
                continue
            begin += size
        return torch.cat(parts)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is that of a device or machine without free memory."""
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError)
        and ("out of memory" in text or "can't allocate memory" in text)
    )


def memory_error(work: str) -> LoadError:
    """Return the error that says what does not fit, and what to do."""
    return LoadError.build(
        expected=f"memory for {work}",
        found="too little",
        advice='Choose shorter samples, pass `device="cpu"`, or score on a larger'
        " machine: see `rounddiag.export_rescore`.",
    )


class Engine(Protocol):
    """Scores exact token ids."""

    @property
    def name(self) -> str:
        """As it is printed."""
        ...

    @property
    def abilities(self) -> frozenset[Need]:
        """What hypotheses may ask of it."""
        ...

    def prepare(self, trajectory: Trajectory) -> Trajectory:
        """Find the image tokens of a sample."""
        ...

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        """Return the log-probs of the scored tokens of each request, in nats."""
        ...

"""What every engine does: score requests; some also give logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from rounddiag.errors import LoadError
from rounddiag.proof.hypotheses.sampling import Seen, chosen_log_probs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.proof.hypotheses.hypothesis import Need
    from rounddiag.proof.hypotheses.sampling import Processor
    from rounddiag.proof.trajectory import Request, Samples, Trajectory

CHUNK = 512  # tokens whose logits are held at once
_LEAST_CHUNK = 8


@dataclass(frozen=True, eq=False)
class Readout:
    """The hidden states of a pass at the scored tokens, from which logits follow.

    Attributes
    ----------
    hidden : Tensor, shape (n, width)
    head : callable
        From hidden states to logits.
    tokens : Tensor of int64, shape (n,)
        The scored tokens.
    seen : Seen
        The ids before them.
    """

    hidden: Tensor
    head: Callable[[Tensor], Tensor]
    tokens: Tensor
    seen: Seen

    @torch.inference_mode()
    def log_probs(self, processors: Sequence[Processor] = ()) -> Array:
        """Return the log-probs of the tokens after processors, shape (n,)."""

        def compute(rows: Tensor) -> Tensor:
            seen = Seen(
                self.seen.ids, self.seen.at[rows], self.seen.begin[rows], self.seen.size
            )
            logits = self.head(self.hidden[rows])
            tokens = self.tokens[rows].to(logits.device)
            return chosen_log_probs(logits, tokens, seen, processors)

        return _by_chunks(len(self.tokens), compute)

    @torch.inference_mode()
    def spread(self) -> Array:
        """Return how much noise of the logits moves each log-prob, shape (n,).

        sqrt((1 - p)^2 + sum of the other p^2): the standard deviation of the log-prob
        when every logit has independent noise of 1 nat.
        """

        def compute(rows: Tensor) -> Tensor:
            chances = self.head(self.hidden[rows]).float().softmax(-1)
            tokens = self.tokens[rows].to(chances.device)
            own = chances.gather(-1, tokens[:, None])[:, 0]
            others = (chances.square().sum(-1) - own.square()).clamp(min=0)
            return ((1 - own).square() + others).sqrt()

        return _by_chunks(len(self.tokens), compute)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is that of a device or machine without free memory."""
    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError)
        and ("out of memory" in text or "can't allocate memory" in text)
    )


def _by_chunks(number: int, compute: Callable[[Tensor], Tensor]) -> Array:
    """Compute values for rows; for fewer at once where memory does not suffice."""
    parts = [torch.empty(0)]
    begin, size = 0, CHUNK
    while begin < number:
        rows = torch.arange(begin, min(begin + size, number))
        try:
            parts.append(compute(rows).float().cpu())
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if size <= _LEAST_CHUNK:
                what = f"the logits of {size} tokens"
                raise memory_error(what) from error
            size //= 4
            continue
        begin += size
    found: Array = torch.cat(parts).double().numpy()
    return found


def memory_error(what: str) -> LoadError:
    """Return the error that says what does not fit, and what to do."""
    return LoadError.build(
        expected=f"memory for {what}",
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

    def prepare(self, one: Trajectory) -> Trajectory:
        """Find the image tokens of a sample."""
        ...

    def score(self, requests: Sequence[Request], samples: Samples) -> list[Array]:
        """Return the log-probs of the scored tokens of each request, in nats."""
        ...

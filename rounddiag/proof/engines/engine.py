"""What every engine does: score requests; some also give logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from rounddiag.proof.hypotheses.sampling import Seen, chosen_log_probs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.proof.hypotheses.hypothesis import Need
    from rounddiag.proof.hypotheses.sampling import Processor
    from rounddiag.proof.trajectory import Pool, Request, Trajectory

CHUNK = 512  # tokens whose logits are held at once


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
        parts = []
        for rows in torch.arange(len(self.tokens)).split(CHUNK):
            seen = Seen(
                self.seen.ids, self.seen.at[rows], self.seen.begin[rows], self.seen.size
            )
            logits = self.head(self.hidden[rows])
            tokens = self.tokens[rows].to(logits.device)
            parts.append(chosen_log_probs(logits, tokens, seen, processors).cpu())
        found: Array = torch.cat([torch.empty(0), *parts]).double().numpy()
        return found

    @torch.inference_mode()
    def spread(self) -> Array:
        """Return how much noise of the logits moves each log-prob, shape (n,).

        sqrt((1 - p)^2 + sum of the other p^2): the standard deviation of the log-prob
        when every logit has independent noise of 1 nat.
        """
        parts = []
        for rows in torch.arange(len(self.tokens)).split(CHUNK):
            chances = self.head(self.hidden[rows]).float().softmax(-1)
            tokens = self.tokens[rows].to(chances.device)
            own = chances.gather(-1, tokens[:, None])[:, 0]
            others = (chances.square().sum(-1) - own.square()).clamp(min=0)
            parts.append(((1 - own).square() + others).sqrt().cpu())
        found: Array = torch.cat([torch.empty(0), *parts]).double().numpy()
        return found


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

    def score(self, requests: Sequence[Request], pool: Pool) -> list[Array]:
        """Return the log-probs of the scored tokens of each request, in nats."""
        ...

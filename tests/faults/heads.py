"""From logits to log-probs: what samplers and low precision do to the head.

A `Head` goes from logits [tokens, vocabulary] and the ids before to log-probs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tests.faults.engine import Head


def tempered(value: float) -> Head:
    """Divide logits by a temperature."""
    return lambda logits, _: (logits.float() / value).log_softmax(-1)


def nucleus(top_p: float) -> Head:
    """Keep the likeliest tokens up to a mass, and give them all of it."""

    def head(logits: Tensor, _: Tensor) -> Tensor:
        values, order = logits.float().log_softmax(-1).sort(-1, descending=True)
        chances = values.exp()
        out = chances.cumsum(-1) - chances >= top_p
        found = torch.empty_like(values)
        return found.scatter_(
            -1, order, values.masked_fill(out, -torch.inf)
        ).log_softmax(-1)

    return head


def best(top_k: int) -> Head:
    """Keep so many of the likeliest tokens."""

    def head(logits: Tensor, _: Tensor) -> Tensor:
        least = logits.float().topk(top_k, dim=-1).values[:, -1:]
        kept = logits.float().masked_fill(logits.float() < least, -torch.inf)
        return kept.log_softmax(-1)

    return head


def bfloat16_all(logits: Tensor, _: Tensor) -> Tensor:
    """Logits and their log-softmax in bfloat16: log-probs on a grid."""
    return logits.bfloat16().log_softmax(-1).float()


def bfloat16_logits(logits: Tensor, _: Tensor) -> Tensor:
    """Logits in bfloat16, their log-softmax in float32: no grid is left."""
    return logits.bfloat16().float().log_softmax(-1)


def repetition(penalty: float) -> Head:
    """Penalise ids that occur before, in the prompt too, as transformers and vLLM do.

    For one token at a time.
    """

    def head(logits: Tensor, before: Tensor) -> Tensor:
        seen = torch.zeros(logits.shape, dtype=torch.bool)
        seen[:, before] = True
        logits = logits.float()
        worse = torch.where(logits > 0, logits / penalty, logits * penalty)
        return torch.where(seen, worse, logits).log_softmax(-1)

    return head

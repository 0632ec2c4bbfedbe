"""What a sampler does to logits: temperature, truncation, penalties, a bias.

None of these needs a pass of its own: the logits of one pass are enough. The order in
which several are applied is that of vLLM: penalties and biases, temperature, min-p,
top-k, top-p. `order_families` has SGLang's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.proof.hypotheses.hypothesis import Family, Hypothesis
from rounddiag.proof.hypotheses.processor import Processor, Seen


def temper(logits: Tensor, seen: Seen, value: float) -> Tensor:
    """Divide logits by a temperature."""
    return logits / value


def keep_min_p(logits: Tensor, seen: Seen, value: float) -> Tensor:
    """Leave out tokens less likely than a share of the likeliest one."""
    lowest = logits.amax(-1, keepdim=True) + float(np.log(value))
    return logits.masked_fill(logits < lowest, -torch.inf)


def keep_top_k(logits: Tensor, seen: Seen, value: float) -> Tensor:
    """Leave out all but the k likeliest tokens."""
    k = min(round(value), logits.shape[-1])
    lowest = logits.topk(k).values[..., -1:]
    return logits.masked_fill(logits < lowest, -torch.inf)


def keep_top_p(logits: Tensor, seen: Seen, value: float) -> Tensor:
    """Leave out all but the likeliest tokens that have a share of the probability."""
    order = logits.sort(-1, descending=True)
    chances = seen.weigh(logits).softmax(-1).gather(-1, order.indices)
    gone = chances.cumsum(-1) - chances > value
    return logits.masked_fill(
        torch.zeros_like(gone).scatter(-1, order.indices, gone), -torch.inf
    )


def _penalise(logits: Tensor, known: Tensor, value: float) -> Tensor:
    lower = torch.where(logits > 0, logits / value, logits * value)
    return torch.where(known, lower, logits)


def penalise_repetition(logits: Tensor, seen: Seen, value: float) -> Tensor:
    """Divide positive logits of ids seen before, multiply negative ones."""
    return _penalise(logits, (seen.output > 0) | (seen.prompt > 0), value)


def penalise_repetition_of_output(logits: Tensor, seen: Seen, value: float) -> Tensor:
    """Do so for the ids that the round has already."""
    return _penalise(logits, seen.output > 0, value)


def penalise_presence(logits: Tensor, seen: Seen, value: float) -> Tensor:
    """Take a constant off the logits of ids that the round has already."""
    return logits - value * (seen.output > 0)


def penalise_frequency(logits: Tensor, seen: Seen, value: float) -> Tensor:
    """Take it off for each time that the round has the id already."""
    return logits - value * seen.output


def round_log_softmax(logits: Tensor, seen: Seen, value: float) -> Tensor:
    """Round logits and log-probs to bfloat16, as a trainer that never upcasts."""
    if seen.weights is None:
        return logits.bfloat16().log_softmax(-1).float()
    rounded = logits.bfloat16().float()
    total = seen.weigh(rounded).logsumexp(-1, keepdim=True)
    return (rounded - total).bfloat16().float()


@dataclass(frozen=True)
class AddTo:
    """Adds a constant to the logit of one id."""

    token_id: int

    def __call__(self, logits: Tensor, seen: Seen, value: float) -> Tensor:
        """Return other logits."""
        added = torch.zeros(logits.shape[-1], device=logits.device)
        added[seen.column(self.token_id)] = value
        return logits + added


Temperature = partial(Processor, temper, rank=1)
MinP = partial(Processor, keep_min_p, rank=3)
TopK = partial(Processor, keep_top_k, rank=4)
TopP = partial(Processor, keep_top_p, rank=5)
RepetitionPenalty = partial(Processor, penalise_repetition, rank=0)
OutputPenalty = partial(Processor, penalise_repetition_of_output, rank=0)
PresencePenalty = partial(Processor, penalise_presence, rank=0)
FrequencyPenalty = partial(Processor, penalise_frequency, rank=0)


def bias_of(token_id: int) -> Callable[[float], Processor]:
    """Return what adds a number to the logit of an id."""
    return partial(Processor, AddTo(token_id), rank=0)


LOG_SOFTMAX_BFLOAT16 = Processor(round_log_softmax, 0.0, rank=7)


def chosen_log_probs(
    logits: Tensor, tokens: Tensor, seen: Seen, processors: Sequence[Processor] = ()
) -> Tensor:
    """Return the log-probs of tokens, or of their columns, after processors."""
    values = logits.float()
    for processor in sorted(processors, key=lambda processor: processor.rank):
        before, values = values, processor(values, seen)
        values = _keep_ties(before, values, tokens)
    if LOG_SOFTMAX_BFLOAT16 not in processors:
        values = values - seen.weigh(values).logsumexp(-1, keepdim=True)
    return values.gather(-1, tokens[:, None])[:, 0]


def _keep_ties(before: Tensor, after: Tensor, tokens: Tensor) -> Tensor:
    """Let a token just below the border take the place of the least likely one kept.

    The sampler's numerics order nearly equal logits anew: those within one step of
    bfloat16. A token that is further below was not kept, and stays left out.
    """
    chosen = tokens[:, None]
    own = before.gather(-1, chosen)
    allowed = after.masked_fill(after == -torch.inf, torch.inf)
    last = allowed.argmin(-1, keepdim=True)
    border = before.gather(-1, last)
    lost = after.gather(-1, chosen) == -torch.inf
    lost &= own >= border - border.abs() * _STEP
    if not lost.any():
        return after
    swapped = after.scatter(-1, last, -torch.inf)
    swapped = swapped.scatter(-1, chosen, own)
    return torch.where(lost, swapped, after)


_STEP = 2.0**-7  # of bfloat16, as a share of the value


# Values of settings that are tried: temperature, top-p, top-k, min-p, presence and
# frequency penalties, repetition penalty.
_T = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98)
_P = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.92, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995)
_K = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 25, 30, 40, 50, 64, 80, 100, 200)
_MIN_P = (0.001, 0.01, 0.02, 0.03, 0.05, 0.08, 0.1, 0.15, 0.2, 0.3)
_PENALTIES = (-0.5, -0.2, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0)
_REPETITIONS = (1.01, 1.02, 1.03, 1.05, 1.08, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
_LEAST_OCCURRENCES = 4  # of an id whose logit may have a bias
_family = partial(Family, needs=("logits",))
_cut = partial(_family, cause="truncated_sampling")
_cut_by_chance = partial(_cut, is_continuous=True)
_penalty = partial(_family, cause="logit_processor", is_continuous=True)
FITTED: tuple[Family, ...] = (
    _family(
        "temperature",
        "temperature {}",
        Temperature,
        (*_T, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0),
        cause="temperature",
        is_continuous=True,
    ),
    _cut_by_chance("top_p", "the nucleus of top-p {} only", TopP, _P),
    _cut("top_k", "the {} likeliest tokens only", TopK, _K, is_ordered=True),
    _cut_by_chance("min_p", "min-p {}", MinP, _MIN_P),
    _penalty(
        "repetition_penalty",
        "a repetition penalty of {} on prompt and output",
        RepetitionPenalty,
        _REPETITIONS,
    ),
    _penalty(
        "repetition_penalty_of_output",
        "a repetition penalty of {} on the output only",
        OutputPenalty,
        _REPETITIONS,
    ),
    _penalty(
        "presence_penalty", "a presence penalty of {}", PresencePenalty, _PENALTIES
    ),
    _penalty(
        "frequency_penalty", "a frequency penalty of {}", FrequencyPenalty, _PENALTIES
    ),
)

# SGLang takes each of min-p, top-k and top-p of the whole distribution, vLLM takes
# top-p of what the others left: the same numbers keep other tokens.
_TOP_P_FIRST = _cut_by_chance(
    "top_p_first",
    "the nucleus of top-p {} of the whole distribution, as SGLang takes it",
    partial(Processor, keep_top_p, rank=2),
    _P,
)
_TOP_K_LAST = _cut(
    "top_k_last",
    "the {} likeliest tokens only, beside top-p as SGLang takes it",
    partial(Processor, keep_top_k, rank=6),
    _K,
)
_MIN_P_LAST = _cut_by_chance(
    "min_p_last",
    "min-p {}, beside top-p as SGLang takes it",
    partial(Processor, keep_min_p, rank=6),
    _MIN_P,
)


def order_families(chain: Sequence[Hypothesis]) -> tuple[Family, ...]:
    """Return the families that truncate in SGLang's order beside what holds already."""
    steps = {
        hypothesis.processor.step
        for hypothesis in chain
        if hypothesis.processor is not None
    }
    if keep_top_p in steps:
        return _TOP_K_LAST, _MIN_P_LAST
    if steps & {keep_top_k, keep_min_p}:
        return (_TOP_P_FIRST,)
    return ()


def bias_families(token_ids: Array, residuals: Array, limit: int = 3) -> list[Family]:
    """Return a family for each id that differs most, of those that occur often."""
    known = np.isfinite(residuals)
    ids, code = np.unique(token_ids[known], return_inverse=True)
    if not len(ids):
        return []
    number = np.bincount(code)
    total = np.abs(np.bincount(code, weights=residuals[known]))
    weight = np.where(number >= _LEAST_OCCURRENCES, total / np.sqrt(number), 0)
    best = np.argsort(-weight)[:limit]
    return [
        _penalty(
            f"bias_of_{ids[i]}",
            f"a bias of {{}} on the logit of id {ids[i]}",
            bias_of(int(ids[i])),
            (-8, -4, -2, -1, -0.5, 0.5, 1, 2, 4, 8),
        )
        for i in best
        if weight[i] > 0
    ]

"""What a proof will cost, said before it starts: passes, seconds, memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rounddiag.proof.engines.engine import ELEMENTS
from rounddiag.proof.engines.local import LocalEngine
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.scorer import Scorer
from rounddiag.wording import printable


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a proof is expected to cost.

    Attributes
    ----------
    num_hypotheses: Hypotheses that can be scored on the first samples.
    num_passes: Passes of the model, for all of them on the first samples and the best
        on more. Two hypotheses together, or further samples, come on top.
    num_tokens: Tokens of these passes.
    seconds: Of these passes, at the speed of the plain ones.
    memory: Bytes of the weights and of the largest pass so far; None if another process
        has the model.
    """

    num_hypotheses: int
    num_passes: int
    num_tokens: int
    seconds: float
    memory: int | None = None

    def __str__(self) -> str:
        memory = "" if self.memory is None else f", {_size(self.memory)} of memory"
        noun = "1 hypothesis"
        if self.num_hypotheses != 1:
            noun = f"{self.num_hypotheses} hypotheses"
        return (
            f"{noun}, about {self.num_passes:,} passes of"
            f" {self.num_tokens / max(self.num_passes, 1):,.0f} tokens,"
            f" {_duration(self.seconds)}{memory}"
        )


def plan_proof(
    scorer: Scorer,
    known: Sequence[Hypothesis],
    first: Sequence[int],
    further: Sequence[int],
    *,
    num_kept: int,
) -> Plan:
    """Return what is expected, at the speed of the plain passes of the first samples.

    `num_kept` hypotheses go on to the further samples.
    """
    sizes = [  # passes and tokens of each hypothesis on the first samples
        size
        for one in known
        if any(size := scorer.size_of(one, first))
        or (one.is_free and not scorer.lacks(one))
    ]
    plain = sum(len(scorer.samples[sample].ids) for sample in first)
    more = sum(len(scorer.samples[sample].ids) for sample in further) / max(plain, 1)
    copies = 1 if scorer.low_precision is None else 2  # of the plain passes
    read = sum(len(scorer.samples[sample].ids) for sample in scorer.scored_samples)
    speed = scorer.seconds.get("base", 0.0) / max(copies * read, 1)
    num_passes = sum(number for number, _ in sizes) + copies * len(further)
    num_tokens = sum(number for _, number in sizes) + copies * more * plain
    # Which of them go on is not known: the average one.
    share = more * min(num_kept, len(sizes)) / max(len(sizes), 1)
    num_passes += round(share * sum(number for number, _ in sizes))
    num_tokens += share * sum(number for _, number in sizes)
    return Plan(
        num_hypotheses=len(sizes),
        num_passes=num_passes,
        num_tokens=round(num_tokens),
        seconds=num_tokens * speed,
        memory=_memory(scorer),
    )


def _memory(scorer: Scorer) -> int | None:
    """Return the bytes of all weights and of logits; on a GPU what was allocated."""
    engines = [scorer.engine, scorer.low_precision, *scorer.weights.values()]
    local = [one for one in engines if isinstance(one, LocalEngine)]
    if not local:
        return None
    device = local[0].model.device
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    models = {id(one.model): one.model for one in local}
    weights = sum(one.get_memory_footprint() for one in models.values())
    longest = max(len(one.ids) for one in scorer.samples.known)
    logits = min(longest * local[0].vocabulary, ELEMENTS)
    return int(weights) + _COPIES * logits * 4


def announce(plan: Plan, engine: str) -> str:
    """Return the line that is printed before a proof starts."""
    return printable(f"rounddiag prove with {engine}: {plan}.")


_MINUTE = 60
_COPIES = 3  # of the logits of a chunk, in float32: before, after, and sorted


def _duration(seconds: float) -> str:
    """Write a duration roughly.

    Examples
    --------
    >>> _duration(0.2), _duration(41.7), _duration(400.0)
    ('about 1 s', 'about 42 s', 'about 7 min')
    """
    if seconds > 2 * _MINUTE:
        return f"about {seconds / _MINUTE:.0f} min"
    return f"about {max(seconds, 1):.0f} s"


def _size(number: int) -> str:
    """Write a number of bytes.

    Examples
    --------
    >>> _size(3_400_000), _size(14_200_000_000)
    ('3 MB', '14.2 GB')
    """
    gigabytes = number / 1e9
    return f"{gigabytes:.1f} GB" if gigabytes >= 1 else f"{number / 1e6:.0f} MB"

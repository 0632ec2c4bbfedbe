"""Faults where they really happen: in weights, context, pictures, cache and sampler.

The healthy engines of a pool share weights; a fault changes one of them and both arrays
come from real passes. Most change the engine that scores: which of the two is wrong
makes no difference to the arrays, and tokens then need to be sampled only once. Faults
of the sampler (`sampler.py`) sample anew.

A severity is a multiple of the healthy mean |diff| of the tokens that a fault touches:
`TARGETS`. Where a fault has a knob of its own (the distance of weights, a temperature,
a scale), the knob is solved for; where it is all or nothing (a picture is there or
not), the changed log-probs are taken back towards the healthy ones in proportion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tests.faults import context_faults, sampler, weight_faults
from tests.faults.severity import ratio

if TYPE_CHECKING:
    from tests.faults.pools import Pool
    from tests.faults.rows import Rows

Build = Callable[[], tuple["Rows", float]]
TARGETS = {"just_visible": (1.7, 2.8), "clear": (6.0, 16.0), "gross": (30.0, 90.0)}
NUM_ROWS = 64
NUM_PROBED = 12


@dataclass(frozen=True)
class Fault:
    """A real fault.

    `apply(pool, knob)` returns broken rows; with `is_linear` it takes no knob but 1.
    """

    cause: str
    apply: Callable[[Pool, float], Rows]
    largest: float = 1.0
    is_linear: bool = False
    kinds: tuple[str, ...] = ("dense", "moe", "vision")


def faults() -> dict[str, Fault]:
    """Return every fault that changes a scoring pass, by name."""
    return {**weight_faults.table(Fault), **context_faults.table(Fault)}


def variants(base: Pool) -> Iterator[tuple[str, Build]]:
    """Yield a label `fault.severity` and how to make its rows."""
    pool = base.part(NUM_ROWS)
    for name, fault in faults().items():
        if base.agent.kind not in fault.kinds:
            continue
        whole: list[Rows] = []
        for severity in TARGETS:
            yield f"{name}.{severity}", _builder(pool, name, fault, severity, whole)
    yield from sampler.variants(base)


def _builder(
    pool: Pool, name: str, fault: Fault, severity: str, whole: list[Rows]
) -> Build:
    seed = [pool.agent.seed, *name.encode()]
    low, high = TARGETS[severity]
    goal = float(np.random.default_rng(seed).uniform(low, high))

    def build() -> tuple[Rows, float]:
        if fault.is_linear:
            if not whole:
                whole.append(fault.apply(pool, 1.0))
            knob = solve(
                lambda s: ratio(pool.rows, taken_back(pool.rows, whole[0], s)),
                goal,
                1.0,
            )
            rows = taken_back(pool.rows, whole[0], knob)
        else:
            probe = pool.part(NUM_PROBED)
            knob = solve(
                lambda s: ratio(probe.rows, fault.apply(probe, s)),
                goal,
                fault.largest,
            )
            rows = fault.apply(pool, knob)
        return rows, ratio(pool.rows, rows)

    return build


def taken_back(healthy: Rows, broken: Rows, share: float) -> Rows:
    """Return old log-probs between the healthy and the broken ones."""
    return broken.change(
        "old",
        lambda i, values: healthy.old[i] + share * (values - healthy.old[i]),
    )


def solve(function: Callable[[float], float], goal: float, largest: float) -> float:
    """Find by bisection the knob that reaches a goal; the largest if none does."""
    high = largest
    if function(high) <= goal:
        return high
    low = high
    while function(low) > goal:
        high, low = low, low / 8
    for _ in range(5):
        middle = float(np.sqrt(low * high))
        if function(middle) > goal:
            high = middle
        else:
            low = middle
    return float(np.sqrt(low * high))

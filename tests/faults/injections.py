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
from functools import cached_property

import numpy as np

from tests.faults import context_faults, sampler, weight_faults
from tests.faults.pools import Pool
from tests.faults.rows import Rows
from tests.faults.severity import ratio

Build = Callable[[], tuple["Rows", float]]
TARGETS = {"just_visible": (1.7, 2.8), "clear": (6.0, 16.0), "gross": (30.0, 90.0)}
NUM_ROWS = 48
NUM_PROBED = 8


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
        scale = Scale(pool, fault)
        for severity in TARGETS:
            yield f"{name}.{severity}", _builder(scale, name, severity)
    yield from sampler.variants(base)


def _builder(scale: Scale, name: str, severity: str) -> Build:
    seed = [scale.pool.agent.seed, *name.encode()]
    goal = float(np.random.default_rng(seed).uniform(*TARGETS[severity]))
    return lambda: scale.rows_at(goal)


class Scale:
    """A fault at many sizes: from the ratio that is wanted to the rows."""

    def __init__(self, pool: Pool, fault: Fault) -> None:
        self.pool = pool
        self.fault = fault

    def rows_at(self, goal: float) -> tuple[Rows, float]:
        """Return rows near a ratio, or at the largest there is, and their ratio."""
        knobs, ratios = self.ladder
        if goal >= ratios[-1]:
            knob = knobs[-1]
        else:
            knob = float(np.exp(np.interp(np.log(goal), np.log(ratios), np.log(knobs))))
        rows = self.at(self.pool, knob)
        return rows, ratio(self.pool.rows, rows)

    def at(self, pool: Pool, knob: float) -> Rows:
        """Return broken rows of a pool."""
        if not self.fault.is_linear:
            return self.fault.apply(pool, knob)
        return taken_back(self.pool.rows, self.whole, knob)

    @cached_property
    def whole(self) -> Rows:
        """The rows of a fault that is all or nothing."""
        return self.fault.apply(self.pool, 1.0)

    @cached_property
    def ladder(self) -> tuple[list[float], list[float]]:
        """Knobs and the ratios at them, measured on few rows, both increasing."""
        probe = self.pool if self.fault.is_linear else self.pool.part(NUM_PROBED)
        knobs = [self.fault.largest / 4**power for power in range(6, -1, -1)]
        ratios = [ratio(probe.rows, self.at(probe, knob)) for knob in knobs]
        return knobs, np.maximum.accumulate(np.maximum(ratios, 1e-3)).tolist()


def taken_back(healthy: Rows, broken: Rows, share: float) -> Rows:
    """Return old log-probs between the healthy and the broken ones."""
    return broken.change(
        "old",
        lambda i, values: healthy.old[i] + share * (values - healthy.old[i]),
    )

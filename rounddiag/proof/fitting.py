"""The number of a family of hypotheses that reproduces an engine best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.proof.hypotheses.hypothesis import Family, Hypothesis
from rounddiag.proof.scores import ScoreTable, log_density

WORSE = 20.0  # nats: a grid value that is so much worse than none has no neighbour
_EQUAL = 8.0  # nats before tempering: one after it
_STEPS = 12  # of the golden section
_GOLDEN = 0.6180339887
_FAR = 50.0  # nats: in place of a token that is impossible


Compute: TypeAlias = Callable[[Sequence[Hypothesis]], Array]
"""From hypotheses to their log-probs, a row for each."""


def fit_family(
    family: Family, table: ScoreTable, engine: str, compute: Compute
) -> Hypothesis | None:
    """Return the hypothesis of the number under which the engine is likeliest.

    None if it is no likelier than without any change.
    """

    def fitness(value: float) -> float:
        return float(_fitness(family, (value,), table, engine, compute)[0])

    values = _fitness(family, family.grid, table, engine, compute)
    best = int(np.argmax(values))
    value, likelihood = family.grid[best], float(values[best])
    before = float(_likelihood(table, table.residual(engine, table.base)))
    if family.is_continuous and likelihood > before - WORSE:
        value, likelihood = _refine(family.grid, best, likelihood, fitness)
    elif family.is_ordered and likelihood > before - WORSE:
        value, likelihood = _climb(family.grid, best, likelihood, fitness)
    return family.at(value) if likelihood > before else None


def _fitness(
    family: Family,
    values: Sequence[float],
    table: ScoreTable,
    engine: str,
    compute: Compute,
) -> Array:
    scores = compute([family.at(value) for value in values])
    return _likelihood(table, table.residual(engine, np.maximum(scores, -_FAR)))


def _likelihood(table: ScoreTable, residual: Array) -> Array:
    density = log_density(residual, table.scale(residual, 0.1 * table.floor))
    return np.nansum(density[..., table.is_informative], -1)


def _climb(
    grid: Sequence[float],
    best: int,
    likelihood: float,
    fitness: Callable[[float], float],
) -> tuple[float, float]:
    """Search whole numbers between the neighbours of the best, by halved steps."""
    value = grid[best]
    around = (grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)])
    step = int(max(abs(each - value) for each in around)) // 2
    while step:
        tried = {
            each: fitness(each)
            for each in (value - step, value + step)
            if around[0] < each < around[1]
        }
        for each, worth in tried.items():
            if worth > likelihood:
                value, likelihood = each, worth
        step //= 2
    return value, likelihood


def _refine(
    grid: Sequence[float],
    best: int,
    likelihood: float,
    fitness: Callable[[float], float],
) -> tuple[float, float]:
    """Search between the neighbours of the best value; prefer few digits."""
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = fitness(left), fitness(right)
    for _ in range(_STEPS):
        if at_left > at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = fitness(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = fitness(right)
    value = (low + high) / 2
    known = {grid[best]: likelihood, value: fitness(value)}
    for digits in (1, 2, 3):
        short = round(value, digits)
        if short > 0 or grid[0] < 0:
            known[short] = fitness(short)
    top = max(known.values())
    # The shortest of the numbers that the tempered likelihood cannot tell apart.
    good = [each for each, worth in known.items() if worth > top - _EQUAL]
    value = min(good, key=lambda each: len(f"{each:.6g}"))
    return value, known[value]

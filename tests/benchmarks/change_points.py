"""Count false alarms of change points on runs without one, and planted ones found.

    python -m tests.benchmarks.change_points [--flat 400] [--planted 20]

A run has 8 rounds, whose means are lognormal with a standard deviation of 0.3 of the
logarithm, over 40 or 200 steps. A planted change multiplies rounds 2 to 7. Where it is
found is counted within two steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.runs.change_points import find_changes

NUM_ROUNDS, SPREAD = 8, 0.3


def independent(generator: np.random.Generator, num: int) -> Array:
    """Normal noise of variance 1."""
    return generator.normal(size=(num, NUM_ROUNDS))


def heavy(generator: np.random.Generator, num: int) -> Array:
    """Student's t with 3 degrees of freedom, of variance 1."""
    noise: Array = generator.standard_t(3, size=(num, NUM_ROUNDS)) / np.sqrt(3)
    return noise


def wandering(generator: np.random.Generator, num: int) -> Array:
    """A random walk whose differences are heavy noise of variance 1."""
    return heavy(generator, num).cumsum(axis=0)


def following(generator: np.random.Generator, num: int, rho: float = 0.5) -> Array:
    """Noise with a lag-1 correlation, of variance 1."""
    noise = generator.normal(size=(num + 50, NUM_ROUNDS))
    for index in range(1, len(noise)):
        noise[index] = rho * noise[index - 1] + np.sqrt(1 - rho**2) * noise[index]
    return noise[50:]


def run_of(log_means: Array) -> pd.DataFrame:
    """The columns of a run's summary that are searched."""
    num = len(log_means)
    return pd.DataFrame(
        {
            "step": np.repeat(np.arange(1, num + 1), NUM_ROUNDS),
            "round": np.tile(np.arange(NUM_ROUNDS), num),
            "mean": 0.01 * np.exp(log_means.ravel()),
        }
    )


def changed(num: int, at: int, factor: float) -> Array:
    """Log factors of a run whose rounds 2 to 7 change after `at` steps."""
    after = (np.arange(num) >= at)[:, None] & (np.arange(NUM_ROUNDS) >= 2)
    signal: Array = after * np.log(factor)
    return signal


def growing(num: int, factor: float) -> Array:
    """Log factors of a run whose rounds 2 to 7 grow evenly by this factor."""
    even = np.linspace(0, np.log(factor), num)[:, None]
    signal: Array = even * (np.arange(NUM_ROUNDS) >= 2)
    return signal


def count(
    noise: Callable[[np.random.Generator, int], Array],
    signal: Array,
    kind: str,
    at: int | None,
    num_runs: int,
) -> dict[str, float]:
    """Share of runs with a false alarm in a round that does not change.

    And the shares of the rounds that change where it is found at its step, and where
    another one is.
    """
    alarms, misplaced, hits = 0, 0, 0
    is_flat = np.equal(np.abs(signal).sum(axis=0), 0)
    for seed in range(num_runs):
        generator = np.random.default_rng(seed)
        changes = find_changes(run_of(SPREAD * noise(generator, len(signal)) + signal))
        is_false = is_flat[changes["round"]]
        is_hit = ~is_false & (changes["change"] == kind)
        if at is not None:
            is_hit &= (changes["step"] - 1 - at).abs() <= 2
        hits += changes[is_hit]["round"].nunique()
        misplaced += changes[~is_hit & ~is_false]["round"].nunique()
        alarms += bool(is_false.any())
    num_changed = max(int((~is_flat).sum()), 1) * num_runs
    return {
        "false alarms": alarms / num_runs,
        "found": hits / num_changed,
        "misplaced": misplaced / num_changed,
    }


def main() -> None:
    """Print both shares of every case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flat", type=int, default=400)
    parser.add_argument("--planted", type=int, default=20)
    options = parser.parse_args()
    print(
        f"{options.flat} runs without a change, {options.planted} a case with one;"
        f" {NUM_ROUNDS} rounds; alarms by run, found by round"
    )
    kinds: dict[str, Callable[[np.random.Generator, int], Array]] = {
        "independent": independent,
        "heavy tails": heavy,
        "rho 0.3": partial(following, rho=0.3),
        "rho 0.5": following,
        "rho 0.8": partial(following, rho=0.8),
    }
    heads = f"{'alarms':>7} {'found':>6} {'elsewhere':>9}"
    print(f"{'steps':>5} {'noise':12} {'signal':24} {heads}")
    for num in (6, 12, 40, 200):
        cases: list[tuple[str, Array, str, int | None]] = [
            ("none", np.zeros((num, NUM_ROUNDS)), "step", None)
        ]
        for factor in (1.5, 2.0, 5.0, 50.0):
            for at in sorted({num // 2, max(num - 8, 3), num - 3}):
                name = f"x {factor:g} after {at}"
                cases.append((name, changed(num, at, factor), "step", at))
        cases.append(("grows x 3", growing(num, 3), "growth", None))
        for kind, noise in kinds.items():
            for name, signal, change, place in cases:
                num_runs = options.planted if signal.any() else options.flat
                result = count(noise, signal, change, place, num_runs)
                shares = f"{result['false alarms']:7.3f} {result['found']:6.2f}"
                shares += f" {result['misplaced']:9.2f}"
                print(f"{num:5} {kind:12} {name:24} {shares}", flush=True)


if __name__ == "__main__":
    main()

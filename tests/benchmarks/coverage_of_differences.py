"""How often intervals of a difference cover it.

Run by `python -m tests.benchmarks.coverage_of_differences`. Rounds are those of
`tests.benchmarks.coverage`; the second batch is half as large again, with other noise
on the same tokens (pairs), or with samples of its own (apart). Prints the share of
intervals that cover the difference, in percent; its standard error with 1000 batches is
0.7 points.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from rounddiag.stats.difference_interval import difference_interval
from rounddiag.stats.intervals import Resampling
from tests.benchmarks.coverage import CASES, Round

Array = np.ndarray[Any, Any]

FACTOR, NOISE = 1.5, 0.5


def sums(case: Round, tokens: Array, counts: Array) -> Array:
    """Return the totals of each sample, and its number of tokens."""
    sample = np.repeat(np.arange(case.num_samples), counts)
    return np.stack([np.bincount(sample, tokens, case.num_samples), counts])


def covered(generator: np.random.Generator, case: Round) -> list[bool]:
    """Say which of the intervals of two simulated batches cover the difference."""
    tokens, counts = case.tokens(generator)
    noise = np.exp(NOISE * generator.standard_normal(len(tokens)) - NOISE**2 / 2)
    before = sums(case, tokens, counts)
    after = sums(case, FACTOR * noise * tokens, counts)
    other, other_counts = case.tokens(generator)
    alone = sums(case, FACTOR * other, other_counts)
    nothing = np.zeros_like(alone)
    pairs = np.stack([before, after], axis=1)
    apart = np.stack(
        [np.hstack([before, nothing]), np.hstack([nothing, alone])], axis=1
    )
    draws = [Resampling(case.num_samples, seed).weights for seed in (0, 1)]
    truth = (FACTOR - 1) * case.truth(by_sample=False)
    found = (
        difference_interval(pairs[0], pairs[1], draws[0]),
        difference_interval(apart[0], apart[1], np.hstack(draws), is_symmetric=True),
    )
    return [low <= truth <= high for _, low, high in found]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1000)
    num_batches = parser.parse_args().batches
    generator = np.random.default_rng(0)
    print("samples  reach  survivors    pairs    apart")
    for case in CASES:
        found = [covered(generator, case) for _ in range(num_batches)]
        pairs, apart = 100 * np.mean(found, axis=0)
        who = "worse" if case.slope else "alike"
        size = f"{case.num_samples:7} {case.reach:6} {who:>10}"
        print(f"{size} {pairs:8.1f} {apart:8.1f}", flush=True)


if __name__ == "__main__":
    main()

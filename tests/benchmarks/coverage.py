"""How often intervals cover the truth: `python -m tests.benchmarks.coverage`.

Tokens are heavy-tailed (lognormal), a sample has an effect of its own (lognormal), long
samples have larger values, and of the samples ever fewer reach a later round: survivors
are alike the others, or worse. The truth is known, so each interval covers it or not.
Prints the share that does, in percent, beside that of an interval that takes tokens as
independent; its standard error with 2000 batches is 0.5 points.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from rounddiag.stats.intervals import Resampling, ratio_interval

Array = np.ndarray[Any, Any]

EFFECT, TAIL = 0.8, 1.5  # standard deviations of the logarithms
LENGTHS = np.arange(20, 120)
UP = 0.75  # share of tokens whose value is positive, where values have a sign


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round that some samples of a batch reach.

    Attributes
    ----------
    num_samples : int
        Of the batch.
    reach : float
        The share of them that reaches the round.
    slope : float
        How the chance to reach it grows with a sample's effect: 0 not at all.
    """

    num_samples: int
    reach: float = 1.0
    slope: float = 0.0

    @property
    def chance(self) -> float:
        """Quantile of the normal distribution that gives this share in all."""
        return float(ndtri(self.reach) * np.hypot(1, self.slope))

    def truth(self, *, by_sample: bool) -> float:
        """Mean of a token, or of a sample's mean, among those that reach the round."""
        drift = self.slope * EFFECT / np.hypot(1, self.slope)
        level = ndtri(self.reach)
        survivors = ndtr(level + drift) / self.reach if self.reach < 1 else 1.0
        lengths = LENGTHS / LENGTHS.mean()
        longer = 1.0 if by_sample else np.square(lengths).mean()
        return float(np.exp((EFFECT**2 + TAIL**2) / 2) * survivors * longer)

    def tokens(self, generator: np.random.Generator) -> tuple[Array, Array]:
        """Return values of tokens, and each sample's number of them."""
        z = generator.standard_normal(self.num_samples)
        reaches = generator.standard_normal(self.num_samples) < self.chance + (
            self.slope * z
        )
        counts = generator.choice(LENGTHS, self.num_samples)
        effects = np.exp(EFFECT * z) * counts / LENGTHS.mean()
        counts = counts * reaches
        tail = np.exp(TAIL * generator.standard_normal(counts.sum()))
        return tail * np.repeat(effects, counts), counts


CASES = (
    *(Round(num_samples=num) for num in (5, 8, 10, 16, 32, 64, 256)),
    *(Round(num_samples=256, reach=0.25, slope=slope) for slope in (0.0, 1.0)),
    *(Round(num_samples=num, reach=0.5, slope=1.0) for num in (32, 64, 128)),
)


def naive(tokens: Array) -> tuple[float, float]:
    """Give the interval that takes tokens as independent."""
    reach = 1.96 * tokens.std(ddof=1) / np.sqrt(len(tokens))
    return float(tokens.mean() - reach), float(tokens.mean() + reach)


def covered(generator: np.random.Generator, case: Round) -> list[bool]:
    """Say which of the intervals of one simulated round cover the truth."""
    tokens, counts = case.tokens(generator)
    sample = np.repeat(np.arange(case.num_samples), counts)
    totals = np.bincount(sample, tokens, case.num_samples)
    signs = np.where(generator.random(len(tokens)) < UP, 1, -1)
    signed = np.bincount(sample, signs * tokens, case.num_samples)
    used = counts > 0
    means = totals / np.maximum(counts, 1)
    draws = Resampling(case.num_samples, seed=int(generator.integers(1 << 31)))
    by_token, by_sample = (case.truth(by_sample=which) for which in (False, True))
    intervals = (
        (by_token, naive(tokens)),
        (by_token, ratio_interval(totals[used], counts[used])),
        (by_token, draws.ratio_interval(totals, counts)),
        (by_sample, draws.ratio_interval(means, used.astype(float))),
        (
            by_token * (2 * UP - 1),
            draws.ratio_interval(signed, counts, is_signed=True),
        ),
    )
    return [low <= truth <= high for truth, (low, high) in intervals]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=2000)
    num_batches = parser.parse_args().batches
    generator = np.random.default_rng(0)
    names = ("per token", "log-scale t", "resampled", "by sample", "signed")
    print("samples  reach  survivors", *[f"{name:>11}" for name in names])
    for case in CASES:
        found = [covered(generator, case) for _ in range(num_batches)]
        shares = 100 * np.mean(found, axis=0)
        who = "worse" if case.slope else "alike"
        print(
            f"{case.num_samples:7} {case.reach:6} {who:>10}",
            *[f"{share:11.1f}" for share in shares],
            flush=True,
        )


if __name__ == "__main__":
    main()

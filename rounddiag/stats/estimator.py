"""How the mean of a round and its interval are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import FrameError
from rounddiag.stats.resampling import is_few

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rounddiag.core.measures import Measure
    from rounddiag.stats.resampling import Resampling

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """What a mean is of, what counts alike in it, and how sure its interval should be.

    Attributes
    ----------
    measure : Measure
    weight : {"token", "sample"}
        That of the measure where it has one.
    ci : float
        How often intervals should cover, between 0 and 1.
    """

    measure: Measure
    weight: str
    ci: float

    def __post_init__(self) -> None:
        if self.weight not in ("token", "sample"):
            raise FrameError.build(
                key="weight",
                expected='"token" or "sample"',
                found=repr(self.weight),
                advice="Name what counts alike in a mean.",
            )
        if not 0 < self.ci < 1:
            raise FrameError.build(
                key="ci",
                expected="a share between 0 and 1",
                found=str(self.ci),
                advice="Pass 0.95 for intervals that cover 95 %.",
            )

    def mean(
        self, runs: Mapping[str, Array], totals: Array, draws: Resampling
    ) -> dict[str, float]:
        """Return the mean of runs, the ends of its interval, and if it is of few.

        Parameters
        ----------
        runs : mapping of str to ndarray
            `sample`, `cluster` and `num_finite`, one value a run.
        totals : ndarray
            Sum over the finite tokens of each run.
        draws : Resampling
            Of the clusters.
        """
        counts, cluster = runs["num_finite"], runs["cluster"]
        if (self.measure.weight or self.weight) == "sample":
            totals, counts, cluster = _of_samples(runs, totals)
        of_clusters = np.bincount(cluster, counts, draws.num_clusters)
        low, high = draws.ratio_interval(
            np.bincount(cluster, totals, draws.num_clusters),
            of_clusters,
            self.ci,
            is_signed=self.measure.is_signed,
        )
        return {
            "mean": totals.sum() / (counts.sum() or np.nan),
            "ci_low": low,
            "ci_high": min(high, self.measure.most),
            "is_few": is_few(of_clusters),
        }


def _of_samples(runs: Mapping[str, Array], totals: Array) -> tuple[Array, Array, Array]:
    """Return the mean, the number of means (0 or 1), and the cluster of each sample."""
    _, first, sample = np.unique(runs["sample"], return_index=True, return_inverse=True)
    counts = np.bincount(sample, runs["num_finite"])
    means = np.bincount(sample, totals) / np.maximum(counts, 1)
    return means, np.sign(counts), runs["cluster"][first]

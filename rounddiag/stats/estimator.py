"""How the mean of a round and its interval are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import FrameError
from rounddiag.stats.resampling import is_few

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

    def means(
        self, parts: Sequence[tuple[Mapping[str, Array], Array]], draws: Resampling
    ) -> list[dict[str, float]]:
        """Return each part's mean, the ends of its interval, and if it is of few.

        Parameters
        ----------
        parts : sequence of (runs, totals)
            Of each run `sample`, `cluster` and `num_finite`, and the sum over its
            finite tokens.
        draws : Resampling
            Of the clusters.
        """
        summed = [self._of_clusters(*part, draws.num_clusters) for part in parts]
        shape = len(summed), draws.num_clusters
        totals, counts = (
            np.reshape([one[name] for one in summed], shape)
            for name in ("totals", "counts")
        )
        signed = self.measure.is_signed
        ends = draws.ratio_intervals(totals, counts, self.ci, is_signed=signed)
        return [
            {
                "mean": one["mean"],
                "ci_low": low,
                "ci_high": min(high, self.measure.most),
                "is_few": is_few(one["counts"]),
            }
            for one, (low, high) in zip(summed, ends, strict=True)
        ]

    def _of_clusters(
        self, runs: Mapping[str, Array], totals: Array, num_clusters: int
    ) -> dict[str, Any]:
        """Return a mean, and what it is made of by cluster."""
        counts, cluster = runs["num_finite"], runs["cluster"]
        if (self.measure.weight or self.weight) == "sample":
            totals, counts, cluster = _of_samples(runs, totals)
        return {
            "mean": totals.sum() / (counts.sum() or np.nan),
            "totals": np.bincount(cluster, totals, num_clusters),
            "counts": np.bincount(cluster, counts, num_clusters),
        }


def _of_samples(runs: Mapping[str, Array], totals: Array) -> tuple[Array, Array, Array]:
    """Return the mean, the number of means (0 or 1), and the cluster of each sample."""
    _, first, sample = np.unique(runs["sample"], return_index=True, return_inverse=True)
    counts = np.bincount(sample, runs["num_finite"])
    means = np.bincount(sample, totals) / np.maximum(counts, 1)
    return means, np.sign(counts), runs["cluster"][first]

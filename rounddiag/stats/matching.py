"""Which samples of two batches are compared: the same ones, or all of either."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.core import round_frame, rounds_of_tokens
from rounddiag.stats.captured import fair_part
from rounddiag.stats.clusters import clusters_of
from rounddiag.stats.resampling import Resampling

if TYPE_CHECKING:
    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two batches: its round frame, and what its samples are called.

    Attributes
    ----------
    rounds : DataFrame
    cluster : ndarray of int, shape (num_samples,)
        What each sample goes together with, counted from 0.
    places : dict of str to int
        Which sample has each id; an id of several samples names none.
    """

    rounds: pd.DataFrame
    cluster: Array
    places: dict[str, int]

    @classmethod
    def of(cls, data: Batch | pd.DataFrame) -> Side:
        """Take a batch, or a token frame, whose samples have no ids."""
        if isinstance(data, pd.DataFrame):
            rounds = rounds_of_tokens(data)
            num = int(rounds["sample"].max()) + 1 if len(rounds) else 0
            return cls(rounds=rounds, cluster=np.arange(num), places={})
        data = fair_part(data)
        ids = data.sample_ids or ()
        once = {name for name, num in Counter(ids).items() if num == 1}
        places = {name: index for index, name in enumerate(ids) if name in once}
        return cls(rounds=round_frame(data), cluster=clusters_of(data), places=places)

    @property
    def num_rounds(self) -> int:
        """One more than the last round's index."""
        return int(self.rounds["round"].max()) + 1 if len(self.rounds) else 0

    def sums(self, unit: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Add up |diff|, and count tokens, by round and unit; those of -1 are none."""
        unit = unit[self.rounds["sample"].to_numpy()]
        kept = self.rounds[unit >= 0]
        counts = (kept["num_tokens"] - kept["num_nonfinite"]).to_numpy()
        totals = np.where(counts > 0, kept["mean_abs_diff"].to_numpy(), 0) * counts
        place = kept["round"].to_numpy() * np.int64(shape[1]) + unit[unit >= 0]
        total, count = (
            np.bincount(place, values, shape[0] * shape[1]).reshape(shape)
            for values in (totals, counts)
        )
        return total, count


@dataclass(frozen=True, kw_only=True)
class Match:
    """What is compared: units that are a pair of samples, or one sample.

    Attributes
    ----------
    units : tuple of two ndarrays of int, each shape (num_samples,)
        The unit of each sample of both batches; -1 of one that is not compared.
    cluster : ndarray of int, shape (num_units,)
    weights : ndarray of float, shape (num_draws, num_clusters)
        How often each draw has each cluster.
    num_pairs : int
        0 where samples are not paired.
    """

    units: tuple[Array, Array]
    cluster: Array
    weights: Array
    num_pairs: int

    def sums(self, sides: tuple[Side, Side]) -> tuple[Array, Array]:
        """Return totals and counts, each of shape (2, num_rounds, num_units).

        A pair that lacks a round in one batch has none of it in the other.
        """
        shape = max(side.num_rounds for side in sides), len(self.cluster)
        of_sides = [
            side.sums(unit, shape) for side, unit in zip(sides, self.units, strict=True)
        ]
        totals, counts = (np.stack(both) for both in zip(*of_sides, strict=True))
        if self.num_pairs:
            has_both = (counts > 0).all(axis=0)
            totals, counts = totals * has_both, counts * has_both
        return totals, counts

    def by_cluster(self, values: Array) -> Array:
        """Add up values of shape (2, num_units) by cluster."""
        num = self.weights.shape[1]
        return np.stack([np.bincount(self.cluster, part, num) for part in values])


def matched(before: Side, after: Side) -> Match:
    """Pair samples by id where half of the smaller batch's are in both."""
    shared = [name for name in before.places if name in after.places]
    smaller = min(len(before.cluster), len(after.cluster))
    if not shared or 2 * len(shared) < smaller:
        return _apart(before, after)
    groups = before.cluster[[before.places[name] for name in shared]]
    cluster = np.unique(groups, return_inverse=True)[1]
    return Match(
        units=(_numbered(before, shared), _numbered(after, shared)),
        cluster=cluster,
        weights=Resampling(int(cluster.max()) + 1).weights,
        num_pairs=len(shared),
    )


def _numbered(side: Side, shared: list[str]) -> Array:
    unit = np.full(len(side.cluster), -1)
    unit[[side.places[name] for name in shared]] = np.arange(len(shared))
    return unit


def _apart(before: Side, after: Side) -> Match:
    """Let every sample of both be a unit, with draws of their own."""
    num = len(before.cluster)
    sizes = [int(side.cluster.max(initial=-1)) + 1 for side in (before, after)]
    draws = [
        Resampling(size, seed).weights[:, :size] for seed, size in enumerate(sizes)
    ]
    return Match(
        units=(np.arange(num), num + np.arange(len(after.cluster))),
        cluster=np.concatenate([before.cluster, sizes[0] + after.cluster]),
        weights=np.concatenate(draws, axis=1),
        num_pairs=0,
    )

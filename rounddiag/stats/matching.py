"""Which samples of two batches are compared: the same ones, or all of either."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag.stats.captured import fair_part
from rounddiag.stats.clusters import clusters_of
from rounddiag.stats.measuring import measured
from rounddiag.stats.partners import places_of, shared_ids
from rounddiag.stats.resampling import Resampling
from rounddiag.stats.runs import runs_of_batch, runs_of_frame

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.core.measures import Measure
    from rounddiag.stats.runs import Runs

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of two batches: what is averaged in its rounds, and who its samples are.

    Attributes
    ----------
    rounds : DataFrame
        The round frame, with `total` and `num` of what is averaged: tokens whose diff
        is finite, or the mean of each sample's.
    num_samples : int
        A frame has rows of no others.
    cluster : ndarray of int
        What each sample goes together with, counted from 0.
    places : dict of str to int
        Which sample has each id; an id of several samples names none.
    """

    rounds: pd.DataFrame
    num_samples: int
    cluster: Array
    places: dict[str, int]

    @classmethod
    def of(cls, data: Batch | pd.DataFrame, measure: Measure) -> Side:
        """Take a batch, or a token frame, that can have `sample_id` and `group_id`."""
        if isinstance(data, pd.DataFrame):
            return cls._of_frame(data, measure)
        data = fair_part(data)
        return cls(
            rounds=_with_totals(runs_of_batch(data, by=None), measure),
            num_samples=data.num_samples,
            cluster=clusters_of(data),
            places=places_of(data.sample_ids),
        )

    @classmethod
    def _of_frame(cls, data: pd.DataFrame, measure: Measure) -> Side:
        runs = runs_of_frame(data, a="old", b="rollout", by=None)
        known = data.drop_duplicates("sample")
        samples = known["sample"].to_numpy()
        ids = known["sample_id"].tolist() if "sample_id" in known else None
        return cls(
            rounds=_with_totals(runs, measure),
            num_samples=len(samples),
            cluster=clusters_of(data),
            places={name: int(samples[at]) for name, at in places_of(ids).items()},
        )

    @property
    def num_rounds(self) -> int:
        """One more than the last round's index."""
        return int(self.rounds["round"].max()) + 1 if len(self.rounds) else 0

    def sums(self, unit: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Add up `total` and `num` by round and unit; those of -1 are none."""
        unit = unit[self.rounds["sample"].to_numpy()]
        kept = self.rounds[unit >= 0]
        place = kept["round"].to_numpy() * np.int64(shape[1]) + unit[unit >= 0]
        total, count = (
            np.bincount(place, kept[name], shape[0] * shape[1]).reshape(shape)
            for name in ("total", "num")
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
    smaller = min(before.num_samples, after.num_samples)
    shared = shared_ids(before.places, after.places, smaller)
    if not shared:
        return _apart(before, after)
    groups = before.cluster[[before.places[name] for name in shared]]
    cluster = np.unique(groups, return_inverse=True)[1]
    return Match(
        units=(_numbered(before, shared), _numbered(after, shared)),
        cluster=cluster,
        weights=Resampling(int(cluster.max()) + 1).weights,
        num_pairs=len(shared),
    )


def _with_totals(runs: Runs, measure: Measure) -> pd.DataFrame:
    """Return the round frame, with the sum of a metric and what it is divided by."""
    rounds, values = runs.rounds, measured(runs.tokens, measure)
    num_tokens = rounds["num_tokens"].to_numpy()
    num = num_tokens - rounds["num_nonfinite"].to_numpy()
    total = np.zeros(len(rounds))
    if len(rounds):
        known = np.where(np.isnan(values), 0, values)
        begins = np.cumsum(num_tokens) - num_tokens
        total = np.add.reduceat(known, begins, dtype=np.float64)
    if measure.weight == "sample":
        total, num = total / np.maximum(num, 1), np.sign(num)
    return rounds.assign(total=total, num=num)


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

"""`find_estimator`: the trainers' formula that gives the advantages of a batch.

Formulas are compared with the trainers' own functions by `tests/interop/advantages.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.core.groups import GroupedSamples

_Baseline: TypeAlias = Literal["none", "group", "others"]
# Trainers compute advantages in float32; `u` is its unit roundoff.
_U = 2.0**-24
_UNDERFLOW = float(np.finfo(np.float32).tiny)  # below it, float32 rounds to 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Rewards:
    """What statistics are taken over: trajectories, or their rows.

    Attributes
    ----------
    reward, group: One value per trajectory.
    count: How often it counts in the statistics of its group: once, or once a row.
    num_tokens: Tokens that the update uses.
    """

    reward: Array
    group: Array
    count: Array
    num_tokens: Array

    @property
    def size(self) -> Array:
        """How many rewards the group of each has."""
        of_groups: Array = np.bincount(self.group, self.count)
        return of_groups[self.group]

    def mean(self, values: Array) -> Array:
        """Return the mean of values over the group of each."""
        of_groups: Array = np.bincount(self.group, self.count * values)
        return of_groups[self.group] / self.size

    @property
    def bound(self) -> Array:
        """The largest rounding error of a deviation from the mean of the group.

        A sum of n numbers is off by at most (n - 1) u sum |x| (Higham, "Accuracy and
        Stability of Numerical Algorithms", 4.2).
        """
        largest = np.zeros(len(np.bincount(self.group)))
        np.maximum.at(largest, self.group, np.abs(self.reward))
        return (self.size + 1) * _U * largest[self.group] + _UNDERFLOW


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate:
    """Advantages and the largest rounding error of each."""

    values: Array
    error: Array

    def standardised(self, weight: Array, spread: Spread) -> Estimate:
        """Subtract the mean of all, weighted, and divide by the standard deviation."""
        total = weight.sum()
        mean = weight @ self.values / total
        variance = weight @ (self.values - mean) ** 2 / total
        if spread.is_unbiased and total > 1:
            variance *= total / (total - 1)
        # Sums of whole batches are pairwise, off by at most log2(N) u max |x|.
        bound = (2 + np.log2(max(total, 1))) * _U * np.abs(self.values).max(initial=0)
        centered = Estimate(values=self.values - mean, error=self.error + bound)
        return centered.divided(spread.of(variance))

    def divided(self, deviation: Array | float) -> Estimate:
        """Divide by standard deviations, which are off as much as the values are."""
        with np.errstate(divide="ignore", invalid="ignore"):
            values = self.values / deviation
            error = self.error * (1 + np.abs(values)) / deviation
        return Estimate(values=values, error=error)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How a trainer makes a standard deviation of a variance.

    Attributes
    ----------
    epsilon: Added to the deviation, or to the variance, which keeps it above 0.
    is_unbiased: Whether the variance has n - 1.
    """

    epsilon: float
    in_root: bool = False
    is_unbiased: bool = True

    def of(self, variance: Array | float) -> Array:
        """Return the deviation."""
        if self.in_root:
            deviation: Array = np.sqrt(variance + self.epsilon)
        else:
            deviation = np.sqrt(variance) + self.epsilon
        return deviation


@dataclass(frozen=True, kw_only=True)
class AdvantageEstimator:
    """A formula for one advantage per trajectory, from rewards and groups.

    Attributes
    ----------
    source: The trainers that have it, with the version that was read.
    baseline: What is subtracted from a reward: nothing, the mean of its group, or that
        of the others in it. A group of one has none.
    scale: What the rest is divided by: 1; the standard deviation of the group's
        rewards or of all; or that of all tokens, after their mean was subtracted.
    """

    name: str
    source: str
    baseline: _Baseline = "group"
    scale: Literal["one", "group", "batch", "tokens"] = "one"
    spread: Spread = Spread(epsilon=0.0)

    def estimate(self, rewards: Rewards) -> Estimate:
        """Return the advantages of trajectories, in float64."""
        size, values = rewards.size, rewards.reward
        is_alone = size == 1
        if self.baseline != "none":
            values = values - np.where(is_alone, 0.0, rewards.mean(rewards.reward))
        if self.baseline == "others":
            values = values * size / np.where(is_alone, 1.0, size - 1)
        estimate = Estimate(values=values, error=rewards.bound)
        if self.scale == "tokens":
            return estimate.standardised(rewards.num_tokens, self.spread)
        if self.scale == "batch":
            of_all = float(np.var(rewards.reward, ddof=min(1, len(size) - 1)))
            return estimate.divided(self.spread.of(of_all))
        if self.scale == "group":
            squares = (rewards.reward - rewards.mean(rewards.reward)) ** 2
            variance = rewards.mean(squares)
            if self.spread.is_unbiased:
                variance = variance * size / np.where(is_alone, 1.0, size - 1)
            return estimate.divided(self.spread.of(np.where(is_alone, 1.0, variance)))
        return estimate


_GRPO = {
    "verl 0.9.1, SkyRL 0.3.0 `compute_grpo_outcome_advantage`, slime": 1e-6,
    "TRL 1.16.0 `GRPOTrainer`, `scale_rewards='group'`": 1e-4,
    "AReaL 1.0.4 `Normalization`, `reward_norm`": 1e-5,
    "OpenRLHF 0.11.2 `group_norm`": 1e-9,
}
_WHITENED = {
    "verl 0.9.1, SkyRL 0.3.0 `masked_whiten`": Spread(epsilon=1e-8, in_root=True),
    "OpenRLHF 0.11.2 `reinforce`, `reinforce_baseline`": Spread(
        epsilon=0.0, is_unbiased=False
    ),
}
_REINFORCE: dict[str, _Baseline] = {
    "REINFORCE++": "none",
    "REINFORCE++ with baseline": "group",
}
ESTIMATORS = (
    *(
        AdvantageEstimator(name="GRPO", source=source, scale="group", spread=spread)
        for source, epsilon in _GRPO.items()
        for spread in (
            Spread(epsilon=epsilon),
            Spread(epsilon=epsilon, is_unbiased=False),
        )
    ),
    AdvantageEstimator(
        name="GRPO with the deviation of all rewards",
        source="TRL 1.16.0 `GRPOTrainer`, `scale_rewards='batch'`",
        scale="batch",
        spread=Spread(epsilon=1e-4),
    ),
    AdvantageEstimator(
        name="Dr. GRPO",
        source="verl 0.9.1 `norm_adv_by_std_in_grpo=False`, TRL 1.16.0"
        " `scale_rewards='none'`, OpenRLHF 0.11.2 `dr_grpo`, prime-rl, Tinker",
    ),
    AdvantageEstimator(
        name="RLOO",
        source="verl 0.9.1, SkyRL 0.3.0 `compute_rloo_outcome_advantage`, OpenRLHF"
        " 0.11.2 `rloo`",
        baseline="others",
    ),
    *(
        AdvantageEstimator(
            name=name, source=source, baseline=baseline, scale="tokens", spread=spread
        )
        for source, spread in _WHITENED.items()
        for name, baseline in _REINFORCE.items()
    ),
)
# A second normalisation: over what, and by which deviation. An epsilon below 1e-6 is
# below the rounding of a deviation of 1.
_AGAIN = [
    Spread(epsilon=epsilon, is_unbiased=is_unbiased)
    for epsilon in (1e-8, 1e-6, 1e-5, 1e-4)
    for is_unbiased in (True, False)
]


@dataclass(frozen=True, eq=False, kw_only=True)
class EstimatorMatch:
    """An estimator that gives the advantages of a batch.

    Attributes
    ----------
    slip: What was done beside its formula; empty if nothing.
    sound: The advantages by its formula, one per sample.
    """

    estimator: AdvantageEstimator
    slip: str = ""
    sound: Array


def find_estimator(
    samples: GroupedSamples, advantages: Array, precision: float
) -> EstimatorMatch | None:
    """Return the estimator that gives one advantage per sample, None if none is known.

    A slip is named where no estimator gives the advantages without it, and one does
    with it, at every sample, up to the rounding of float32 and to `precision`, the
    relative spacing of the numbers of the file's dtype.
    """
    is_used = samples.num_tokens > 0
    given = advantages[is_used]
    first, of_sample = np.unique(
        samples.trajectory, return_index=True, return_inverse=True
    )[1:]
    if (samples.reward != samples.reward[first][of_sample]).any():
        first = of_sample = np.arange(len(of_sample))  # a reward for each row
    rewards = Rewards(
        reward=samples.reward[first],
        group=samples.group[first],
        count=np.ones(len(first)),
        num_tokens=np.bincount(of_sample, samples.num_tokens),
    )
    num_rows = np.bincount(of_sample, samples.num_rows)

    def gives(estimate: Estimate) -> bool:
        values, error = (
            part[of_sample][is_used] for part in (estimate.values, estimate.error)
        )
        limit = error + precision * np.abs(given)
        return bool((np.abs(values - given) <= limit).all())

    for estimator in ESTIMATORS:
        estimate = estimator.estimate(rewards)
        if gives(estimate):
            return EstimatorMatch(estimator=estimator, sound=estimate.values[of_sample])
    for estimator, slip, estimate in _slips(rewards, num_rows):
        if gives(estimate):
            sound = estimator.estimate(rewards).values[of_sample]
            return EstimatorMatch(estimator=estimator, slip=slip, sound=sound)
    return None


def _slips(
    rewards: Rewards, num_rows: Array
) -> Iterator[tuple[AdvantageEstimator, str, Estimate]]:
    total, num = int(num_rows.sum()), len(num_rows)
    if total > num:
        slip = f"with statistics over {total:,} rows, not {num:,} trajectories"
        rows = replace(rewards, count=num_rows)
        for estimator in ESTIMATORS:
            if estimator.baseline != "none":
                yield estimator, slip, estimator.estimate(rows)
    supports = {
        "tokens": rewards.num_tokens,
        "trajectories": rewards.count,
        **({"rows": num_rows} if total > num else {}),
    }
    scaled = [estimator for estimator in ESTIMATORS if estimator.scale == "group"]
    for estimator, (support, weight), spread in product(
        scaled, supports.items(), _AGAIN
    ):
        again = estimator.estimate(rewards).standardised(weight, spread)
        yield estimator, f"normalised a second time, over all {support}", again

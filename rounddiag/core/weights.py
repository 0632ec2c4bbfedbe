"""The weights by which corrections multiply the advantage of each token."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns import ColumnSource, register_column
from rounddiag.core.aggregation import means_of_sums
from rounddiag.core.divergence import clamp_log_ratio, k2
from rounddiag.core.scores import select_scores
from rounddiag.core.sums import diffs, pack_tokens
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import (
    CORRECTIONS,
    Correction,
    Pair,
    find_correction,
    weight_column,
)

_EDGE = 1e-6  # probabilities of `binary_kl` are clamped to it, as in verl and OpenRLHF


@dataclass(frozen=True, eq=False, kw_only=True)
class Ratios:
    """The generated tokens whose log ratio is finite, as corrections read them.

    Attributes
    ----------
    kept: bool array, one per generated token. Which tokens these are.
    sample: int64 array
    a, b: float64 array. Log-probs of both engines, in nats.
    log_ratio, update: float64 array. `a - b`; `current - old`, or None where the batch
        has no score `current`.
    advantage: float64 array. 1 where neither the batch nor the caller has advantages.
    """

    kept: Array
    sample: Array
    a: Array
    b: Array
    log_ratio: Array
    update: Array | None
    advantage: Array

    @classmethod
    def of(cls, batch: Batch, a: str, b: str, advantages: Array | None) -> Ratios:
        """Read a batch."""
        pair = select_scores(batch, a, b)
        log_ratio = diffs(pair).astype(np.float64)
        is_kept = np.isfinite(log_ratio)
        num = batch.rounds.num_tokens.cpu().numpy()
        sample = np.repeat(batch.rounds.sample.cpu().numpy(), num)
        update = None
        if "current" in batch.scores and Pair(a, b).is_standard:
            update = diffs(select_scores(batch, "current", "old")).astype(np.float64)
            is_kept &= np.isfinite(update)
        weight = _advantages(batch, sample, advantages)
        of_a, of_b = (
            pack_tokens(pair, score)[is_kept] for score in pair.both_log_probs()
        )
        return cls(
            kept=is_kept,
            sample=sample[is_kept],
            a=of_a.astype(np.float64),
            b=of_b.astype(np.float64),
            log_ratio=log_ratio[is_kept],
            update=None if update is None else update[is_kept],
            advantage=weight[is_kept],
        )

    @cached_property
    def ratio(self) -> Array:
        """The importance ratio of each token."""
        ratio: Array = np.exp(clamp_log_ratio(self.log_ratio))
        return ratio

    @cached_property
    def sample_ratio(self) -> Array:
        """The product of the ratios of each token's sample."""
        total = self._over_samples(self.log_ratio, "sum")
        ratio: Array = np.exp(clamp_log_ratio(total))
        return ratio

    def statistic(self, correction: Correction) -> Array:
        """Return what decides whether a token is kept, one value per token."""
        if correction.estimator in ("prob_diff", "signed_prob_diff"):
            apart: Array = np.exp(self.a) - np.exp(self.b)
            return np.abs(apart) if correction.estimator == "prob_diff" else apart
        if correction.estimator == "binary_kl":
            return _binary_kl(self.a, self.b)
        is_update = correction.weight == "update"
        log_ratio = self._require_update() if is_update else self.log_ratio
        level = correction.level
        if correction.estimator == "ratio":
            if level in ("token", "all") and not is_update:
                return self.ratio
            of_samples = self._over_samples(log_ratio, level)
            ratios: Array = np.exp(clamp_log_ratio(of_samples))
            return ratios
        log_ratio = clamp_log_ratio(log_ratio)  # verl clamps each token of a rejection
        if correction.estimator == "k1":
            of_samples = self._over_samples(log_ratio, level)
            inverse: Array = np.exp(-clamp_log_ratio(of_samples))
            return inverse
        is_k2 = correction.estimator == "k2"
        values = k2(log_ratio) if is_k2 else np.expm1(log_ratio) - log_ratio
        return self._over_samples(values, level)

    def weights(self, correction: Correction) -> Array:
        """Return what the advantage of each token is multiplied by; 0 where dropped."""
        value, (low, high) = self.statistic(correction), correction.bounds
        is_update = correction.weight == "update"
        if is_update or correction.estimator == "signed_prob_diff":
            # PPO stops the gradient only where the ratio left the range already.
            above = (value > high) & (self.advantage > 0)
            below = (value < low) & (self.advantage < 0)
            factor = value if is_update else self.ratio
            weights: Array = np.where(above | below, 0.0, factor)
            return weights
        keep = (value >= low) & (value <= high)
        if correction.level == "all":
            is_kept = np.ones(int(self.sample.max(initial=-1)) + 1, dtype=bool)
            is_kept[self.sample[~keep]] = False
            keep = is_kept[self.sample]
        if correction.weight == "one":
            return keep.astype(np.float64)
        ratio = self.sample_ratio if correction.weight == "sample" else self.ratio
        weight: Array = np.where(keep, np.clip(ratio, *correction.clip), 0.0)
        return weight

    def _require_update(self) -> Array:
        if self.update is None:
            raise lacks_update()
        return self.update

    def _over_samples(self, values: Array, level: str) -> Array:
        """Sum or average over each sample; values of other levels stay as they are."""
        if level not in ("sum", "mean"):
            return values
        total = np.bincount(self.sample, weights=values)
        if level == "mean":
            total = means_of_sums(total, np.bincount(self.sample))
        of_samples: Array = total[self.sample]
        return of_samples


def token_weights(
    batch: Batch, name: str | Correction, a: str = "old", b: str = "rollout"
) -> Array:
    """Return the weight that a correction gives each generated token, NaN if undefined.

    0 where it drops the token.

    Examples
    --------
    >>> import rounddiag as rd
    >>> token_weights(rd.load("sample_data/healthy.parquet"), "none")[:2]
    array([1., 1.], dtype=float32)
    """
    ratios = Ratios.of(batch, a, b, None)
    totals = np.full(len(ratios.kept), np.nan, dtype=np.float32)
    totals[ratios.kept] = ratios.weights(find_correction(name))
    return totals


def lacks_update() -> BatchError:
    """Build the error of a batch without the log-probs of the update."""
    return BatchError.build(
        key="current",
        expected="a score `current` for a correction of the update ratio",
        found="a batch without it",
        advice="Save the log-probs of the update in `scores`, or leave `ppo_clip` and"
        " `gspo_clip` out.",
    )


def _register(correction: Correction) -> None:
    def make(batch: Batch) -> ColumnSource | None:
        is_update = correction.weight == "update"
        if is_update and "current" not in batch.scores:
            return None
        return lambda: token_weights(batch, correction)

    register_column(weight_column(correction), "token", "number", make)


for _correction in CORRECTIONS.values():
    _register(_correction)


def _advantages(batch: Batch, sample: Array, given: Array | None) -> Array:
    """Return the advantage of every generated token; 1 where none is known."""
    if given is None:
        if batch.advantages is None:
            return np.ones(len(sample))
        return pack_tokens(batch, batch.advantages).astype(np.float64)
    values = np.asarray(given, dtype=np.float64)
    if values.shape == (batch.num_samples,):
        return values[sample]
    if values.shape == (len(sample),):
        return values
    raise FrameError.build(
        key="advantages",
        expected=f"{batch.num_samples:,} values, one per sample, or {len(sample):,},"
        " one per generated token",
        found=f"an array of shape {values.shape}",
        advice="Leave it out for those of the batch.",
    )


def _binary_kl(a: Array, b: Array) -> Array:
    """Return the larger Kullback-Leibler divergence of two Bernoulli distributions."""
    p, q = (np.clip(np.exp(log_probs), _EDGE, 1 - _EDGE) for log_probs in (a, b))
    odds, rest = np.log(p / q), np.log((1 - p) / (1 - q))
    forward, reverse = p * odds + (1 - p) * rest, -q * odds - (1 - q) * rest
    divergence: Array = np.maximum(forward, reverse)
    return divergence

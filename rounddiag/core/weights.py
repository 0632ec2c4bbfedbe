"""The weights by which corrections multiply the advantage of each token."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.columns import ColumnSource, register_column
from rounddiag.core.divergence import clamp_log_ratio, k2
from rounddiag.core.loss_ratio import LossRatio, find_loss_ratio
from rounddiag.core.scores import pair_of, select_scores
from rounddiag.core.sums import diffs, pack_tokens
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import (
    CORRECTIONS,
    Correction,
    Edges,
    Mask,
    Pair,
    RatioName,
    Weight,
    find_correction,
    weight_column,
)

_LARGEST = float(np.finfo(np.float32).max)
_KL_EDGE = 1e-8  # added to 1 - p in the binary divergence, as verl and SkyRL do
_LEAST_MEAN = 1e-8  # below it verl and slime do not divide by a mean of weights


@dataclass(frozen=True, eq=False, kw_only=True)
class Weighed:
    """The weights of a correction.

    Attributes
    ----------
    is_clipped: Which tokens have a factor that is beyond its bounds, and are kept.
    num_left: By how many tokens a mean over them divides.
    """

    weight: Array
    is_clipped: Array
    num_left: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Ratios:
    """The generated tokens that the loss counts, as corrections read them.

    Attributes
    ----------
    chosen: Which ratio is that of the mismatch, and why.
    in_loss: bool array, one per generated token. Which tokens these are.
    sample: int64 array
    pairs: Of each ratio, the batch with its two scores.
    log_ratios: Of each ratio, its logarithm, in float64 nats, as float32 has it.
    spoiled: Of each ratio, the samples with a token outside the loss that is not
        finite.
    advantage: float64 array. 1 where neither the batch nor the caller has advantages.
    has_advantages: Whether one of them has.
    """

    chosen: LossRatio
    in_loss: Array
    sample: Array
    num_samples: int
    pairs: dict[RatioName, Batch]
    log_ratios: dict[RatioName, Array]
    spoiled: dict[RatioName, Array]
    advantage: Array
    has_advantages: bool
    _known: dict[object, Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        batch: Batch,
        a: str | None = None,
        b: str | None = None,
        advantages: Array | None = None,
    ) -> Ratios:
        """Read a batch; without `a` and `b`, the ratio that its loss used."""
        of_loss = chosen = find_loss_ratio(batch)
        if a is not None or b is not None:
            chosen = LossRatio(Pair(a or "old", b or "rollout"), "as asked for")
        names: dict[RatioName, Pair] = {"mismatch": chosen.pair, "whole": chosen.pair}
        whole, is_own = Pair("current", "rollout"), pair_of(batch).is_standard
        if is_own and "current" in batch.scores and chosen.pair in (Pair(), whole):
            before = "rollout" if of_loss.pair == whole else "old"
            names |= {"whole": whole, "update": Pair("current", before)}
        num = batch.rounds.num_tokens.cpu().numpy()
        sample = np.repeat(batch.rounds.sample.cpu().numpy(), num)
        in_loss = np.ones(len(sample), dtype=bool)
        if batch.loss_mask is not None:
            in_loss = pack_tokens(batch, batch.loss_mask) != 0
        pairs = {
            name: select_scores(batch, pair.a, pair.b) for name, pair in names.items()
        }
        log_ratios: dict[RatioName, Array] = {}
        spoiled: dict[RatioName, Array] = {}
        for scores in {*names.values()}:
            shared = [name for name, pair in names.items() if pair == scores]
            log_ratio = diffs(pairs[shared[0]])
            is_bad = ~in_loss & ~np.isfinite(log_ratio)
            in_bad = np.bincount(sample[is_bad], minlength=batch.num_samples) > 0
            spoiled |= dict.fromkeys(shared, in_bad)
            known = log_ratio[in_loss].astype(np.float64)
            log_ratios |= dict.fromkeys(shared, known)
        return cls(
            chosen=chosen,
            in_loss=in_loss,
            sample=sample[in_loss],
            num_samples=batch.num_samples,
            pairs=pairs,
            log_ratios=log_ratios,
            spoiled=spoiled,
            advantage=_advantages(batch, sample, advantages)[in_loss],
            has_advantages=advantages is not None or batch.advantages is not None,
        )

    @cached_property
    def whole(self) -> Array:
        """The whole ratio of each token, of a log ratio clamped to 20 nats."""
        return np.exp(clamp_log_ratio(self.log_ratios["whole"]))

    @np.errstate(invalid="ignore", over="ignore", divide="ignore")
    def weigh(self, correction: Correction) -> Weighed:
        """Return the weight of each token; NaN or infinite where the trainer's own is.

        Raises
        ------
        BatchError
            If it is of the update, of which the batch has no log-probs.
        """
        if not correction.ratios <= {*self.log_ratios}:
            raise lacks_update()
        edges, num = correction.edges, len(self.sample)
        weight, is_left = np.ones(num), np.ones(num, dtype=bool)
        is_kept, is_clipped = is_left, np.zeros(num, dtype=bool)
        for factor in correction.weight:
            ratio, (low, high) = self._ratio(factor, edges), factor.bounds
            is_inside = _is_inside(ratio, low, high)
            if factor.outside == "drop":
                ratio = np.where(is_inside, ratio, 0.0)
            elif factor.bounds != (0.0, math.inf):
                is_clipped |= self._spread(~is_inside & ~np.isnan(ratio))
                ratio = np.clip(ratio, low, high)
            if factor.is_normalised:
                ratio = _normalise(ratio)
            weight *= self._spread(ratio)
        for condition in correction.mask:
            meets = self._meets(condition, edges)
            is_kept = is_kept & meets
            is_left = is_left & meets if condition.shrinks else is_left
        if correction.mask:
            weight, is_clipped = np.where(is_kept, weight, 0.0), is_clipped & is_kept
        num_left = int(np.count_nonzero(is_left))
        return Weighed(weight=weight, is_clipped=is_clipped, num_left=num_left)

    @cached_property
    def num_tokens(self) -> Array:
        """How many tokens each sample has that has any, in order."""
        num = np.bincount(self.sample, minlength=self.num_samples)
        return num[num > 0]

    @cached_property
    def starts(self) -> Array:
        """The first token of each of these samples."""
        return np.cumsum(self.num_tokens) - self.num_tokens

    def _spread(self, values: Array) -> Array:
        """Give the tokens the values of their samples; values of tokens stay."""
        if len(values) == len(self.sample):
            return values
        return np.repeat(values, self.num_tokens)

    def _total(self, values: Array, level: str) -> Array:
        """Sum or average over each sample; values of tokens stay at other levels."""
        if level not in ("sum", "mean") or not len(values):
            return values
        total: Array = np.add.reduceat(values, self.starts)
        return total / self.num_tokens if level == "mean" else total

    def _ratio(self, factor: Weight, edges: Edges) -> Array:
        key = ("ratio", factor.ratio, factor.level, edges)
        if key not in self._known:
            zeroes = "none" if edges.drops_infinite else edges.zeroes
            log_ratio = self._log_ratio(factor.ratio, factor.level, zeroes, edges)
            ratio = np.exp(np.clip(log_ratio, -edges.nats, edges.nats))
            if edges.drops_infinite:
                ratio = np.where(ratio <= _LARGEST, ratio, 0.0)
            self._known[key] = ratio
        return self._known[key]

    def _log_ratio(
        self, name: RatioName, level: str, zeroes: str, edges: Edges
    ) -> Array:
        level = level if level in ("sum", "mean") else "token"
        key = (name, level, zeroes, edges.spreads)
        if key not in self._known:
            values = self.log_ratios[name]
            if zeroes == "nan":
                values = np.where(np.isnan(values), 0.0, values)
            elif zeroes == "nonfinite":
                values = np.where(np.isfinite(values), values, 0.0)
            total = self._total(values, level)
            if edges.spreads and level != "token":
                is_spoiled = self.spoiled[name][self.sample[self.starts]]
                total = np.where(is_spoiled, np.nan, total)
            self._known[key] = total
        return self._known[key]

    def _meets(self, condition: Mask, edges: Edges) -> Array:
        (low, high), level = condition.bounds, condition.level
        log_ratio = self._log_ratio(condition.ratio, level, edges.zeroes, edges)
        value = log_ratio
        if condition.quantity != "ratio":
            value = self._total(self._quantity(condition), level)
        if condition.is_ratio:
            low, high = np.log(low), np.log(high)
        meets = _is_inside(value, low, high)
        if edges.keeps_unknown:
            meets |= np.isnan(value)
        meets = self._spread(meets)
        if condition.sign == "away":
            meets = meets | ~(self._spread(log_ratio) * self.advantage > 0)
        elif condition.sign == "negative":
            meets = meets | ~(self.advantage < 0)
        if level == "all" and len(meets):
            meets = self._spread(np.logical_and.reduceat(meets, self.starts))
        return meets

    def _quantity(self, condition: Mask) -> Array:
        """Return the quantity of each token, that of `k1` in logarithms."""
        name, quantity = condition.ratio, condition.quantity
        if quantity in ("k1", "k2", "k3"):
            clamped = clamp_log_ratio(self.log_ratios[name])
            k3 = np.expm1(clamped) - clamped if quantity == "k3" else clamped
            return {"k1": -clamped, "k2": k2(clamped)}.get(quantity, k3)
        pair = self.pairs[name]
        log_p, log_q = (
            pack_tokens(pair, score)[self.in_loss].astype(np.float64)
            for score in pair.both_log_probs()
        )
        p, q = np.exp(log_p), np.exp(log_q)
        if quantity == "prob_diff":
            return np.abs(p - q)
        rest = np.log((1 - q + _KL_EDGE) / (1 - p + _KL_EDGE))
        return q * (log_q - log_p) + (1 - q) * rest


def _is_inside(values: Array, low: float, high: float) -> Array:
    """Return which values are inside of bounds; an unknown one is not."""
    is_inside: Array = values <= high
    if low > -math.inf:
        is_inside &= values >= low
    return is_inside


def _normalise(ratio: Array) -> Array:
    """Divide by the mean over tokens or samples, unless that is unknown or about 0."""
    mean = ratio.mean() if len(ratio) else math.nan
    return ratio / mean if mean > _LEAST_MEAN else ratio


def token_weights(
    batch: Batch, name: str | Correction, a: str | None = None, b: str | None = None
) -> Array:
    """Return the weight that a correction gives each generated token.

    0 where it drops the token; NaN outside the loss, and where it is not defined.

    Examples
    --------
    >>> import rounddiag as rd
    >>> token_weights(rd.load("sample_data/healthy.parquet"), "none")[:2]
    array([1., 1.], dtype=float32)
    """
    ratios = Ratios.of(batch, a, b)
    weights = np.full(len(ratios.in_loss), np.nan, dtype=np.float32)
    with np.errstate(over="ignore"):
        weights[ratios.in_loss] = ratios.weigh(find_correction(name)).weight
    return weights


def lacks_update() -> BatchError:
    """Build the error of a batch without the log-probs of the update."""
    return BatchError.build(
        key="current",
        expected="a score `current` for a correction of the update ratio",
        found="a batch without it",
        advice="Save the log-probs of the update in `scores`, or leave `ppo_clip` and"
        " others of the update out.",
    )


def _register(correction: Correction) -> None:
    def make(batch: Batch) -> ColumnSource | None:
        if "update" in correction.ratios and "current" not in batch.scores:
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

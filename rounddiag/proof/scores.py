"""The scores of the same tokens: of the batch's engines, of a scorer; their noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import BatchError, RounddiagError

Stops: TypeAlias = Mapping[int, "int | None"]
"""Samples in their order, and before which of its ids each ends; None is at its end."""

MATTERS = 4.0  # times the noise
_FAR = -50.0  # nats: in place of what is impossible
_ROUNDING = 2.0**-8  # nats above 0: one unit of bfloat16 at 1
_MOST_IMPOSSIBLE = 0.01  # share of -inf; float32 gives none where the id has a logit

FREEDOM = 3.0  # of Student's t: engines have tails
LEAST_SPREAD = 0.02  # below it the log-prob's own rounding is larger
_ROUNDS = 30  # of Newton's method, at most
_LONGEST = 2.0  # step of the logarithm
_CLOSE = 1e-4  # relative change at which the scale is found
_LEAST_FLOOR = 1e-5  # nats of logits: float32 kernels of other shapes
_TINY = 1e-7  # least scale, of residuals that are all 0


def check_log_probs(
    values: Array, who: str, error: type[RounddiagError] = BatchError
) -> Array:
    """Return what an engine answered as float64, if it can be log-probs.

    Every engine's answer goes through here: finite numbers of at most 0 within
    rounding, and -inf for at most one token in a hundred.

    Examples
    --------
    >>> check_log_probs(np.array([-1.5, 0.0]), "the server").tolist()
    [-1.5, 0.0]
    """
    log_probs = np.asarray(values, dtype=np.float64)
    impossible = log_probs == -np.inf
    wrong = ~impossible & ~(np.abs(log_probs) < np.finfo(np.float32).max)
    wrong |= log_probs > _ROUNDING
    fault = ""
    if wrong.any():
        first, number = log_probs[wrong][0], int(wrong.sum())
        fault = f"{first:.6g} for {number} of {len(log_probs)} tokens"
    elif impossible.mean() > _MOST_IMPOSSIBLE if len(log_probs) else False:
        fault = f"-inf for {int(impossible.sum())} of {len(log_probs)} tokens"
    if fault:
        raise error.build(
            expected=f"log-probs of {who}: finite, at most 0",
            found=fault,
            advice="Compare one sample with a forward pass of the model.",
        )
    return log_probs


def clip_log_probs(values: Array) -> Array:
    """Return log-probs with -50 in place of less, and of -inf; NaN stays."""
    return np.maximum(values, _FAR)


def scale_residuals(residuals: Array, spread: Array) -> Array:
    """Divide residuals of log-probs by how much noise of the logits moves them."""
    return residuals / np.maximum(spread, LEAST_SPREAD)


def fit_scale(values: Array, smallest: float = _TINY) -> Array:
    """Fit the scale of Student's t with 3 degrees of freedom around 0, row by row.

    The maximum of the likelihood is where the mean of 4 x^2 / (3 scale^2 + x^2) is 1:
    Newton's method on the logarithm of scale^2. Values that are not finite are left
    out.

    Examples
    --------
    >>> float(fit_scale(np.array([2.0, -2.0, np.nan])))
    2.0
    """
    known = np.isfinite(values)
    if not known.any():
        return np.full(values.shape[:-1], smallest)
    size = np.abs(np.where(known, values, 0.0))
    number = np.maximum(known.sum(-1), 1)
    middle = np.expand_dims(values.shape[-1] - (number + 1) // 2, -1)
    start = np.take_along_axis(np.sort(size, -1), middle, -1)[..., 0]
    log = 2 * np.log(np.maximum(start, smallest))
    square = size**2
    for _ in range(_ROUNDS):
        total = FREEDOM * np.exp(log)[..., None] + square
        part = square / total
        over = (FREEDOM + 1) * part.sum(-1) / number - 1
        slope = (FREEDOM + 1) * (part * (1 - part)).sum(-1) / number
        step = np.clip(over / np.maximum(slope, _TINY), -_LONGEST, _LONGEST)
        before, log = log, np.maximum(log + step, 2 * np.log(smallest))
        if np.abs(log - before).max() < 2 * _CLOSE:
            break
    return np.exp(log / 2)


def log_density(values: Array, scale: Array) -> Array:
    """Return the log-density of Student's t, up to a constant.

    Examples
    --------
    >>> log_density(np.array([0.0]), np.array(1.0)).tolist()
    [-0.0]
    """
    scale = np.expand_dims(scale, -1)
    tail = (FREEDOM + 1) / 2 * np.log1p((values / scale) ** 2 / FREEDOM)
    return -tail - np.log(scale)


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreTable:
    """The scores of the same tokens: of the batch's engines and of a scorer.

    Attributes
    ----------
    engines: The log-probs of the batch, such as `old` and `rollout`.
    base: The scorer's log-probs of unchanged inputs.
    low_precision: The same in the short dtype of training, or with other kernels: its
        distance from `base` is the floor of the noise.
    spread: See `Readout.spread`.
    sample, round, at: Where the tokens are; `at` is among all positions of the batch.
    stops: The samples, and where each ends.
    usual: How far the batch's engines are apart at tokens as likely, in nats, outside
        all places of the diagnosis; NaN inside.
    """

    engines: Mapping[str, Array]
    base: Array
    low_precision: Array
    spread: Array
    sample: Array
    round: Array
    at: Array
    stops: Stops = field(default_factory=dict)
    usual: Array | None = None

    def __len__(self) -> int:
        return len(self.base)

    @cached_property
    def is_outside(self) -> Array:
        """Tokens outside all places of the diagnosis."""
        if self.usual is None:
            return np.zeros(len(self), dtype=bool)
        return np.isfinite(self.usual)

    @cached_property
    def rounding(self) -> Array:
        """What the short dtype adds to the base; NaN where both are impossible."""
        with np.errstate(invalid="ignore"):
            rounding: Array = self.low_precision - self.base
        return rounding

    @cached_property
    def floor(self) -> float:
        """The scale of the scorer's own noise, in nats of logits."""
        noise = scale_residuals(self.rounding, self.spread)
        is_uncertain = self.spread >= LEAST_SPREAD
        informed = noise[is_uncertain] if is_uncertain.any() else noise
        return max(float(fit_scale(informed)), _LEAST_FLOOR)

    @cached_property
    def is_informative(self) -> Array:
        """Tokens that show the noise, or a fault: not those that are certain to all."""
        certain = self.spread < LEAST_SPREAD
        far = np.zeros(len(self), dtype=bool)
        for truth in self.engines.values():
            with np.errstate(invalid="ignore"):
                apart = np.abs(scale_residuals(self.base - truth, self.spread))
            far |= apart > MATTERS * self.floor
        return ~certain | far

    def at_most(self, noise: float) -> ScoreTable:
        """Return the table with so much noise of the short dtype, if it has more."""
        factor = min(max(noise, _LEAST_FLOOR) / self.floor, 1.0)
        return replace(self, low_precision=self.base + factor * self.rounding)

    def scale(self, residual: Array, smallest: float = 1e-7) -> Array:
        """Return the scale of residuals of each row, over the tokens that inform."""
        return fit_scale(residual[..., self.is_informative], smallest)

    def residual(self, engine: str, scores: Array) -> Array:
        """Return rows of scores minus an engine's, on the scale of logits.

        The engine's own numerics are those of `base` or of `low_precision`, whichever
        is nearer: the difference is added to the scores.
        """
        truth, spread = clip_log_probs(self.engines[engine]), self.spread_of(engine)
        plain = scale_residuals(clip_log_probs(scores) - truth, spread)
        rounding = scale_residuals(self.rounding, spread)
        both = np.stack([plain, plain + rounding])
        scale = self.scale(both)
        is_low = np.expand_dims(scale[1] < 0.8 * scale[0], -1)
        return np.where(is_low, both[1], both[0])

    def spread_of(self, engine: str) -> Array:
        """Return the spread, larger where the engine is less certain than the base.

        A fault makes certain tokens uncertain, and these have noise then.
        """
        truth = np.nan_to_num(self.engines[engine], nan=0.0)
        return np.maximum(self.spread, -np.expm1(np.minimum(truth, 0)))

    def of_samples(self, samples: Sequence[int]) -> ScoreTable:
        """Return the table of some samples."""
        tokens = np.isin(self.sample, samples)
        return replace(
            self,
            engines={name: values[tokens] for name, values in self.engines.items()},
            base=self.base[tokens],
            low_precision=self.low_precision[tokens],
            spread=self.spread[tokens],
            sample=self.sample[tokens],
            round=self.round[tokens],
            at=self.at[tokens],
            stops={sample: self.stops[sample] for sample in samples},
            usual=None if self.usual is None else self.usual[tokens],
        )

    def without(self, engine: str, tokens: Array | None) -> ScoreTable:
        """Return the table without an engine's log-probs of some tokens."""
        if tokens is None:
            return self
        truth = np.where(tokens, np.nan, self.engines[engine])
        return replace(self, engines={**self.engines, engine: truth})

    def rebase(self, scores: Array) -> ScoreTable:
        """Return the table with a hypothesis as the new base."""
        return replace(self, base=scores, low_precision=scores + self.rounding)

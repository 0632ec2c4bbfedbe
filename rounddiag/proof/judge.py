"""Which hypothesis reproduces which engine, if any: numbers in, an opinion out.

An engine's log-probs are compared with those that a scorer computes under each
hypothesis, on the scale of logits (`noise`). A hypothesis is proved for an engine only
if all of these hold:

- *better*: its e-value against the base, a product over samples of tempered likelihood
  ratios, is 20 times the number of hypotheses or more;
- *reproduces*: what it leaves is at most some floors of noise, on the tokens that it or
  the engine changes;
- *explains*: at least 0.8 of what the base leaves beyond noise is gone;
- *specific*: where the base reproduces the engine, it does too;
- *powered*: it changes enough tokens by more than noise;
- *distinct*: no hypothesis of another cause does as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.proof.noise import (
    LEAST_SPREAD,
    fit_scale,
    log_density,
    scale_residuals,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rounddiag._typing import Array

TEMPER = 1 / 8  # tokens of a sample are dependent
CAP = 4.0  # nats that one token can add before tempering
MOST_FLOORS = 3.5
LEAST_SHARE = 0.8
LEAST_GAIN = 2.0  # base's residual over the hypothesis's, on the tokens that matter
MOST_HARMED = 0.1
MATTERS = 4.0  # floors
LEAST_TOKENS = 6
LEVEL = 20.0


@dataclass(frozen=True, eq=False, kw_only=True)
class Sheet:
    """The scores of the same tokens: two engines and a scorer.

    Attributes
    ----------
    engines : mapping of str to float array
        `old` and `rollout`: the log-probs of the batch.
    base : float array
        The scorer's log-probs of unchanged inputs.
    rough : float array
        The same in the short dtype of training, or with other kernels: its distance
        from `base` is the floor of the noise.
    spread : float array
        See `Readout.spread`.
    sample, round : int arrays
        Where the tokens are.
    """

    engines: Mapping[str, Array]
    base: Array
    rough: Array
    spread: Array
    sample: Array
    round: Array

    def __len__(self) -> int:
        return len(self.base)

    @cached_property
    def floor(self) -> float:
        """The scale of the scorer's own noise, in nats of logits."""
        noise = scale_residuals(self.rough - self.base, self.spread)
        is_uncertain = self.spread >= LEAST_SPREAD
        kept = noise[is_uncertain] if is_uncertain.any() else noise
        return max(fit_scale(kept), 1e-5)

    @cached_property
    def informs(self) -> Array:
        """Tokens that show the noise, or a fault: not those that are certain to all."""
        certain = self.spread < LEAST_SPREAD
        far = np.zeros(len(self), dtype=bool)
        for truth in self.engines.values():
            with np.errstate(invalid="ignore"):
                apart = np.abs(scale_residuals(self.base - truth, self.spread))
            far |= apart > MATTERS * self.floor
        return ~certain | far

    def scale(self, residual: Array, least: float = 1e-7) -> float:
        """Return the scale of residuals, over the tokens that inform."""
        return fit_scale(residual[self.informs], least)

    def residual(self, engine: str, scores: Array) -> Array:
        """Return scores minus an engine's, on the scale of logits.

        The engine's own numerics are those of `base` or of `rough`, whichever is
        nearer: the difference is added to the scores.
        """
        truth, spread = self.engines[engine], self.spread_of(engine)
        plain = scale_residuals(scores - truth, spread)
        rough = scale_residuals(scores + self.rough - self.base - truth, spread)
        return rough if self.scale(rough) < 0.8 * self.scale(plain) else plain

    def spread_of(self, engine: str) -> Array:
        """Return the spread, larger where the engine is less certain than the base.

        A fault makes certain tokens uncertain, and these have noise then.
        """
        truth = np.nan_to_num(self.engines[engine], nan=0.0)
        found: Array = np.maximum(self.spread, -np.expm1(np.minimum(truth, 0)))
        return found

    def take(self, tokens: Array) -> Sheet:
        """Return the sheet of some tokens."""
        return replace(
            self,
            engines={name: values[tokens] for name, values in self.engines.items()},
            base=self.base[tokens],
            rough=self.rough[tokens],
            spread=self.spread[tokens],
            sample=self.sample[tokens],
            round=self.round[tokens],
        )

    def rebase(self, engine: str, scores: Array) -> Sheet:
        """Return the sheet of one engine, with a hypothesis as the new base."""
        return replace(
            self,
            engines={engine: self.engines[engine]},
            base=scores,
            rough=scores + self.rough - self.base,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Opinion:
    """How well one hypothesis reproduces one engine.

    Attributes
    ----------
    name, engine : str
        `base` is the name of no change.
    where : str
        `all`, or the part of the batch in which it holds.
    evidence : float
        The logarithm of the e-value against the base.
    floors : float
        What is left on the tokens that matter, in floors of noise.
    residual, before : float
        Median of what is left, and of what the base leaves, on these tokens, in nats
        of log-probs.
    noise : float
        Median of the floor on the same tokens, in nats of log-probs.
    share : float
        How much of what the base leaves beyond noise is gone.
    harmed : float
        Share of the tokens that the base reproduces and it does not.
    gain : float
        The base's scale over its own, on the tokens that matter.
    num_tokens, num_samples, num_nearer : int
        The tokens that matter, their samples, and in how many it is nearer than the
        base.
    is_powered : bool
    scores : float array
        The log-probs under the hypothesis, those of the base where it does not hold.
    """

    name: str
    engine: str
    where: str
    evidence: float
    floors: float
    residual: float
    before: float
    noise: float
    share: float
    harmed: float
    gain: float
    num_tokens: int
    num_samples: int
    num_nearer: int
    is_powered: bool
    scores: Array = field(repr=False)

    @property
    def reproduces(self) -> bool:
        """Whether it brings the engine back to the noise, and harms nothing."""
        return (
            self.floors <= MOST_FLOORS
            and self.share >= LEAST_SHARE
            and self.gain >= LEAST_GAIN
            and self.harmed <= MOST_HARMED
            and self.is_powered
            and self.num_nearer > self.num_samples / 2
        )

    def is_proof(self, num_hypotheses: int) -> bool:
        """Whether it reproduces the engine, and its e-value pays for the search."""
        return self.reproduces and self.evidence >= np.log(LEVEL * num_hypotheses)


def reference_floor(sheet: Sheet) -> float:
    """Return the floor of noise against engines: the scorer's, or a larger one.

    The engine that the base reproduces best shows how large the noise between engines
    is; no more than ten times the scorer's own is believed to be noise.
    """
    scales = [
        sheet.scale(sheet.residual(engine, sheet.base)) for engine in sheet.engines
    ]
    return float(np.clip(min(scales), sheet.floor, 10 * sheet.floor))


def correlate_changes(sheet: Sheet, engine: str, scores: Array) -> float:
    """Return how a hypothesis's changes correlate with those of an engine."""
    changed = scale_residuals(scores - sheet.base, sheet.spread)
    wanted = scale_residuals(sheet.engines[engine] - sheet.base, sheet.spread)
    known = np.isfinite(changed) & np.isfinite(wanted)
    x, y = (np.tanh(one[known] / 2) for one in (changed, wanted))
    size = np.sqrt((x**2).sum() * (y**2).sum())
    return float((x * y).sum() / size) if size > 0 else 0.0


def judge(
    sheet: Sheet,
    engine: str,
    name: str,
    scores: Array,
    floor: float,
    *,
    is_whole: bool = False,
) -> Opinion:
    """Judge one hypothesis against the base, in the part of the batch it fits best.

    Or in all of it.
    """
    whole = np.where(np.isnan(scores), sheet.base, scores)
    base = sheet.residual(engine, sheet.base)
    best: tuple[float, str, Array] | None = None
    parts = _parts(sheet, base, sheet.residual(engine, whole))
    for where, inside, price in islice(parts, 1 if is_whole else None):
        part = np.where(inside, whole, sheet.base)
        value = _evidence(sheet, base, sheet.residual(engine, part), floor) - price
        if best is None or value > best[0] + (price > 0):
            best = value, where, part
    assert best is not None  # noqa: S101 the first part is all
    return _measure(sheet, engine, name, best, floor)


def _parts(
    sheet: Sheet, base: Array, changed: Array
) -> Iterable[tuple[str, Array, float]]:
    """Yield where a hypothesis may hold, and what it costs to choose so."""
    everywhere = np.ones(len(sheet), dtype=bool)
    yield "all", everywhere, 0.0
    samples = np.unique(sheet.sample)
    nearer = [
        sample
        for sample in samples
        if np.nansum(np.abs(changed[sheet.sample == sample]).clip(max=10))
        < np.nansum(np.abs(base[sheet.sample == sample]).clip(max=10))
    ]
    if 0 < len(nearer) < len(samples):
        words = f"{len(nearer)} of {len(samples)} samples"
        yield words, np.isin(sheet.sample, nearer), len(samples) * np.log(2.0)
    rounds = np.unique(sheet.round)
    price = 2 * np.log(2.0 * max(len(rounds), 1))
    for first in rounds[1:]:
        yield f"from round {first} on", sheet.round >= first, price
        yield f"before round {first}", sheet.round < first, price


def _evidence(sheet: Sheet, base: Array, changed: Array, floor: float) -> float:
    """Return the logarithm of the e-value of a hypothesis against the base.

    It is the product over samples of tempered likelihood ratios.
    """
    least = 0.25 * floor
    new, old = sheet.scale(changed, least), sheet.scale(base, least)
    ratio = np.clip(log_density(changed, new) - log_density(base, old), -CAP, CAP)
    with np.errstate(invalid="ignore"):
        counts = sheet.informs | (np.abs(changed) > MATTERS * floor)
    return float(np.nansum(ratio[counts]) * TEMPER)


def _measure(
    sheet: Sheet,
    engine: str,
    name: str,
    best: tuple[float, str, Array],
    floor: float,
) -> Opinion:
    evidence, where, scores = best
    base = sheet.residual(engine, sheet.base)
    changed = sheet.residual(engine, scores)
    spread = np.maximum(sheet.spread_of(engine), LEAST_SPREAD)
    moved = np.abs((scores - sheet.base) / spread) > MATTERS * floor
    matters = (moved | (np.abs(base) > MATTERS * floor)) & np.isfinite(base)
    if not matters.any():
        matters = np.isfinite(base)
    left, before = np.abs(changed * spread), np.abs(base * spread)
    noise = np.abs(sheet.rough - sheet.base) * floor / sheet.floor
    beyond = np.nansum(before[matters]) - np.nansum(noise[matters])
    gone = np.nansum(before[matters]) - np.nansum(left[matters])
    sound = (np.abs(base) <= 2 * floor) & np.isfinite(base)
    harmed = np.abs(changed[sound]) > 2 * MATTERS * floor
    samples = np.unique(sheet.sample[matters])
    nearer = sum(
        np.nansum(left[matters & (sheet.sample == one)])
        < np.nansum(before[matters & (sheet.sample == one)])
        for one in samples
    )
    scale = fit_scale(changed[matters], 0.01 * floor)
    return Opinion(
        name=name,
        engine=engine,
        where=where,
        evidence=evidence,
        floors=scale / floor,
        residual=_median(left[matters]),
        before=_median(before[matters]),
        noise=_median(noise[matters]),
        share=float(np.clip(gone / beyond, -1, 1)) if beyond > 0 else 0.0,
        harmed=float(harmed.mean()) if len(harmed) else 0.0,
        gain=fit_scale(base[matters], 0.01 * floor) / scale,
        num_tokens=int(matters.sum()),
        num_samples=len(samples),
        num_nearer=int(nearer),
        is_powered=int(moved.sum()) >= LEAST_TOKENS,
        scores=scores,
    )


def _median(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else np.nan


def base_opinion(sheet: Sheet, engine: str, floor: float) -> Opinion:
    """Return how well the unchanged inputs reproduce an engine, on all tokens."""
    residual = sheet.residual(engine, sheet.base)
    spread = np.maximum(sheet.spread_of(engine), LEAST_SPREAD)
    left = np.abs(residual * spread)
    noise = np.abs(sheet.rough - sheet.base) * floor / sheet.floor
    far = np.abs(residual[np.isfinite(residual)]) > 2 * MATTERS * floor
    return Opinion(
        name="base",
        engine=engine,
        where="all",
        evidence=0.0,
        floors=sheet.scale(residual, 0.01 * floor) / floor,
        residual=_median(left[sheet.informs]),
        before=_median(left[sheet.informs]),
        noise=_median(noise[sheet.informs]),
        share=0.0,
        harmed=float(far.mean()) if len(far) else 0.0,
        gain=1.0,
        num_tokens=len(sheet),
        num_samples=len(np.unique(sheet.sample)),
        num_nearer=0,
        is_powered=True,
        scores=sheet.base,
    )

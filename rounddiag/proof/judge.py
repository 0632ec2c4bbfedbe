"""Which hypothesis reproduces which engine, if any: numbers in, an opinion out.

An engine's log-probs are compared with those that a scorer computes under each
hypothesis, on the scale of logits (`noise`). A hypothesis is proved for an engine only
if all of these hold:

- *better*: its tempered likelihood ratio against the base is 20 times the number of
  hypotheses or more; the scales are fitted to the same tokens, so it is no e-value;
- *reproduces*: what it leaves is at most some times the noise, on the tokens that it or
  the engine changes;
- *explains*: at least 0.8 of what the base leaves beyond noise is gone;
- *specific*: where the base reproduces the engine, it does too;
- *powered*: it changes enough tokens by more than noise; one that excludes tokens also
  needs some that it must exclude;
- *distinct*: no hypothesis of another cause does as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from rounddiag._typing import Array
from rounddiag.proof.gate import MOST_OF_USUAL
from rounddiag.proof.hypotheses.hypothesis import Hypothesis
from rounddiag.proof.scores import (
    LEAST_SPREAD,
    MATTERS,
    ScoreTable,
    fit_scale,
    log_density,
    scale_residuals,
)

TEMPER = 1 / 8  # tokens of a sample are dependent
CAP = 4.0  # nats that one token can add before tempering
MOST_RESIDUAL_TO_NOISE = 3.5  # what a hypothesis that reproduces an engine may leave
LEAST_SHARE = 0.8  # of what the base leaves beyond noise: the hypothesis explains it
LEAST_GAIN = 2.0  # base's residual over the hypothesis's, on the tokens that matter
MOST_HARMED = 0.1  # share of the tokens that the base reproduces, and it does not
LEAST_TOKENS = 6  # that the hypothesis changes by more than noise
LEAST_RATIO = 20.0  # likelihood over that of the base, for each hypothesis tried
SAMPLER = "rollout"  # the engine that drew the tokens
_MOST_NATS = 1.0  # of one token, in a share: none decides it


@dataclass(frozen=True, eq=False, kw_only=True)
class Opinion:
    """How well one hypothesis reproduces one engine.

    Attributes
    ----------
    name, engine: `base` is the name of no change.
    where: `all`, or the part of the batch in which it holds.
    evidence: The tempered log-likelihood ratio against the base, in nats.
    residual_to_noise: What is left on the affected tokens, in units of the noise floor.
    residual, before: Median of what is left, and of what the base leaves, on these
        tokens, in nats of log-probs.
    noise: Median of the floor on the same tokens, in nats of log-probs.
    share: How much of what the base leaves beyond noise is gone.
    harmed: Share of the tokens that the base reproduces and it does not.
    gain: The base's scale over its own, on the tokens that matter.
    num_tokens, num_samples, num_nearer: The tokens that matter, their samples, and in
        how many it is nearer than the base.
    scores: The log-probs under the hypothesis, those of the base where it does not
        hold.
    """

    name: str = "base"
    engine: str
    where: str = "all"
    evidence: float = 0.0
    residual_to_noise: float
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
            self.residual_to_noise <= MOST_RESIDUAL_TO_NOISE
            and self.share >= LEAST_SHARE
            and self.gain >= LEAST_GAIN
            and self.harmed <= MOST_HARMED
            and self.is_powered
            and self.num_nearer > self.num_samples / 2
        )

    def is_proof(self, num_hypotheses: int) -> bool:
        """Whether it reproduces the engine, and its likelihood pays for the search."""
        threshold = np.log(LEAST_RATIO * num_hypotheses)
        return self.reproduces and self.evidence >= threshold


def noise_floor(table: ScoreTable, engine: str) -> float:
    """Return the scale of the noise of one engine, in nats of logits.

    It is what the base leaves of the engine outside all places; where nothing is
    outside, or all is, of the engine that it reproduces best, so that a fault of all
    tokens is no noise. It is at least the scorer's own and at most twice the larger of
    that and the best engine's, as at the gate.
    """
    outside = table.is_outside & table.is_informative
    inside = outside if outside.any() else table.is_informative
    scales = {
        name: float(fit_scale(table.residual(name, table.base)[inside]))
        for name in table.engines
    }
    best = min(scales.values())
    is_part = outside.any() and not table.is_outside.all()
    own = scales[engine] if is_part else best
    floor = max(table.floor, min(best, MOST_OF_USUAL * table.floor))
    return float(np.clip(own, table.floor, MOST_OF_USUAL * floor))


def correlate_changes(table: ScoreTable, engine: str, scores: Array) -> float:
    """Return how a hypothesis's changes correlate with those of an engine."""
    changed = scale_residuals(scores - table.base, table.spread)
    wanted = scale_residuals(table.engines[engine] - table.base, table.spread)
    known = np.isfinite(changed) & np.isfinite(wanted)
    x, y = (np.tanh(change[known] / 2) for change in (changed, wanted))
    size = np.sqrt((x**2).sum() * (y**2).sum())
    return float((x * y).sum() / size) if size > 0 else 0.0


def judge(
    table: ScoreTable,
    engine: str,
    hypothesis: Hypothesis,
    scores: Array,
    floor: float,
) -> Opinion:
    """Judge one hypothesis against the base, in the part of the batch it fits best.

    Or in all of it, for one that `is_whole`. One that `excludes` tokens is proved only
    with tokens that it must exclude.
    """
    whole = np.where(np.isnan(scores), table.base, scores)
    base = table.residual(engine, table.base)
    parts = [("all", np.ones(len(table), dtype=bool), 0.0)]
    if not hypothesis.is_whole:
        parts += _parts(table, base, table.residual(engine, whole))
    names, inside, prices = zip(*parts, strict=True)
    held = np.where(np.array(inside), whole, table.base)
    changed = table.residual(engine, held)
    worth = _evidence(table, base, changed, floor) - np.array(prices)
    worth[1:] -= 1  # a part is chosen where it is better by more than its price
    best = int(worth.argmax())
    measured = _measure(table, engine, floor, held[best], base, changed[best])
    opinion = replace(
        measured,
        name=hypothesis.name,
        where=names[best],
        evidence=float(worth[best] + (best > 0)),
    )
    if hypothesis.excludes and not _has_excluded(table, engine, opinion.scores):
        return replace(opinion, is_powered=False)
    return opinion


def _has_excluded(table: ScoreTable, engine: str, scores: Array) -> bool:
    """Return whether tokens show that an engine left others out.

    The sampler: a token drawn among those that are kept is likelier by the factor of
    what is left out; without truncation such draws have a probability of 1/20 or less.
    Another engine: it gives none to tokens that were drawn and that it must leave out.
    """
    if engine == SAMPLER:
        allowed = scores > -np.inf
        gained = float(np.nansum(scores[allowed] - table.base[allowed]))
        return bool(gained >= np.log(LEAST_RATIO))
    gone = (scores == -np.inf) & ~np.isfinite(table.engines[engine])
    return int(gone.sum()) >= LEAST_TOKENS


def _parts(
    table: ScoreTable, base: Array, changed: Array
) -> list[tuple[str, Array, float]]:
    parts = []
    samples = np.unique(table.sample)
    left = np.nan_to_num(np.abs(np.stack([changed, base]))).clip(max=10)
    nearer = [
        sample
        for sample in samples
        if np.less(*left[:, table.sample == sample].sum(-1))
    ]
    if 0 < len(nearer) < len(samples):
        words = f"{len(nearer)} of {len(samples)} samples"
        price = len(samples) * np.log(2.0)
        parts.append((words, np.isin(table.sample, nearer), price))
    rounds = np.unique(table.round)
    price = 2 * np.log(2.0 * max(len(rounds), 1))
    for first in rounds[1:]:
        parts.append((f"from round {first} on", table.round >= first, price))
        parts.append((f"before round {first}", table.round < first, price))
    return parts


def _evidence(table: ScoreTable, base: Array, changed: Array, floor: float) -> Array:
    smallest = 0.25 * floor
    new, old = table.scale(changed, smallest), table.scale(base, smallest)
    ratio = np.clip(log_density(changed, new) - log_density(base, old), -CAP, CAP)
    with np.errstate(invalid="ignore"):
        counts = table.is_informative | (np.abs(changed) > MATTERS * floor)
    return np.nansum(np.where(counts, ratio, 0), -1) * TEMPER


def _measure(
    table: ScoreTable,
    engine: str,
    floor: float,
    scores: Array,
    base: Array,
    changed: Array,
) -> Opinion:
    spread = np.maximum(table.spread_of(engine), LEAST_SPREAD)
    with np.errstate(invalid="ignore"):  # both impossible: not moved
        moved = np.abs((scores - table.base) / spread) > MATTERS * floor
    matters = (moved | (np.abs(base) > MATTERS * floor)) & np.isfinite(base)
    if not matters.any():
        matters = np.isfinite(base)
    left, before = (
        np.minimum(np.abs(residual * spread), _MOST_NATS)
        for residual in (changed, base)
    )
    noise = np.abs(table.rounding) * floor / table.floor
    beyond = np.nansum(before[matters]) - np.nansum(noise[matters])
    gone = np.nansum(before[matters]) - np.nansum(left[matters])
    sound = (np.abs(base) <= 2 * floor) & np.isfinite(base)
    harmed = np.abs(changed[sound]) > 2 * MATTERS * floor
    samples = np.unique(table.sample[matters])
    nearer = sum(
        np.nansum(left[matters & (table.sample == sample)])
        < np.nansum(before[matters & (table.sample == sample)])
        for sample in samples
    )
    scale = float(fit_scale(changed[matters], 0.01 * floor))
    return Opinion(
        engine=engine,
        residual_to_noise=scale / floor,
        residual=_median(left[matters]),
        before=_median(before[matters]),
        noise=_median(noise[matters]),
        share=float(np.clip(gone / beyond, -1, 1)) if beyond > 0 else 0.0,
        harmed=float(harmed.mean()) if len(harmed) else 0.0,
        gain=float(fit_scale(base[matters], 0.01 * floor)) / scale,
        num_tokens=int(matters.sum()),
        num_samples=len(samples),
        num_nearer=int(nearer),
        is_powered=int(moved.sum()) >= LEAST_TOKENS,
        scores=scores,
    )


def _median(values: Array) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else np.nan


def base_opinion(table: ScoreTable, engine: str, floor: float) -> Opinion:
    """Return how well the unchanged inputs reproduce an engine, on all tokens."""
    residual = table.residual(engine, table.base)
    spread = np.maximum(table.spread_of(engine), LEAST_SPREAD)
    left = np.abs(residual * spread)
    noise = np.abs(table.rounding) * floor / table.floor
    far = np.abs(residual[np.isfinite(residual)]) > 2 * MATTERS * floor
    return Opinion(
        engine=engine,
        residual_to_noise=(
            float(table.scale(residual, 0.01 * floor)) / floor
            if np.isfinite(residual).any()
            else np.nan
        ),
        residual=_median(left[table.is_informative]),
        before=_median(left[table.is_informative]),
        noise=_median(noise[table.is_informative]),
        share=0.0,
        harmed=float(far.mean()) if len(far) else 0.0,
        gain=1.0,
        num_tokens=len(table),
        num_samples=len(np.unique(table.sample)),
        num_nearer=0,
        is_powered=True,
        scores=table.base,
    )

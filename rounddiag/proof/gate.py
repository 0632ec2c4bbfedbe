"""The gate: whether the scorer is a sound engine of this batch.

Before it is passed, nothing is said about an engine. The scorer's residual is compared
with what is usual at tokens outside all places of the diagnosis: the difference of the
batch's engines at tokens as likely, or the scorer's own noise, whichever is larger.
Tokens are never chosen by their difference. Where no token is outside of all places,
all tokens of one engine count, against the scorer's own noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.findings import Diagnosis
from rounddiag.findings.bins import bins, quantile_edges
from rounddiag.proof.scores import ScoreTable, clip_log_probs

MOST_OF_USUAL = 2.0  # times what is usual
_CONFIDENCE = 0.95
_BINS = 8  # of probability
_LEAST = 50  # tokens of the batch outside all places, from which a level is measured


@dataclass(frozen=True, eq=False)
class Reference:
    """The tokens of a batch outside all places, and how its engines differ there.

    Attributes
    ----------
    is_outside: bool array. Of the flat tokens of the batch.
    edges: Between bins of the sampler's log-prob.
    level: Mean |old - rollout| of each bin, in nats.
    by: The sampler's log-probs of the flat tokens.
    """

    is_outside: Array
    edges: Array
    level: Array
    by: Array

    @classmethod
    def of_batch(cls, batch: Batch, diagnosis: Diagnosis) -> Reference | None:
        """Return the tokens outside all findings; None where these show no noise."""
        if diagnosis.verdict == "not_measurable":
            return None
        is_outside = batch.response_mask.cpu().numpy() != 0
        for finding in diagnosis:
            if finding.severity == "bug":  # of others the log-probs are sound
                is_outside[finding.view.flat[finding.indices]] = False
        old, rollout = (
            clip_log_probs(batch.log_probs(name).cpu().double().numpy())
            for name in ("old", "rollout")
        )
        diff = np.abs(old - rollout)
        is_outside &= np.isfinite(diff)
        if is_outside.sum() < _LEAST:
            return None
        # More than is usual for the kind of run may be a fault of all tokens.
        if diff[is_outside].mean() > diagnosis.reference.usual:
            return None
        edges = quantile_edges(rollout[is_outside], _BINS)
        code = bins(edges, rollout[is_outside])
        size = len(edges) + 1
        total = np.bincount(code, weights=diff[is_outside], minlength=size)
        count = np.bincount(code, minlength=size)
        return cls(is_outside, edges, total / np.maximum(count, 1), rollout)

    def usual(self, at: Array) -> Array:
        """Return the level at flat tokens; NaN inside of places."""
        level = self.level[bins(self.edges, self.by[at])]
        return np.where(self.is_outside[at], level, np.nan)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """How well the scorer reproduces one engine where no fault is.

    Attributes
    ----------
    ratio: Mean |residual| over what is usual at the same tokens.
    low, high: Its one-sided bounds of 95 % each, with rounds of samples as clusters.
    residual, usual: Both means, in nats.
    uninformed: Mean |residual| of a scorer that gives each token the same log-prob.
    is_outside: Whether these are tokens outside all places; else all of the engine.
    """

    engine: str
    ratio: float
    low: float
    high: float
    residual: float
    usual: float
    uninformed: float
    num_tokens: int
    is_outside: bool


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Whether the scorer is a sound engine of this batch, and of which one.

    Attributes
    ----------
    fits: Of each engine, the best first.
    note: Which checkpoint is the base, where it is not the model that was given; or
        which ones were tried in vain.
    """

    fits: Sequence[Fit]
    note: str = ""

    @classmethod
    def of_table(cls, table: ScoreTable) -> Gate:
        """Compare the base with each engine."""
        fits = [_fit(table, engine) for engine in table.engines]
        return cls(fits=sorted(fits, key=lambda fit: (fit.high, fit.ratio)))

    @property
    def passes(self) -> bool:
        """Whether the scorer is one engine, as far as noise allows."""
        return any(fit.high <= MOST_OF_USUAL for fit in self.fits)

    @property
    def is_decided(self) -> bool:
        """Whether more tokens would change nothing."""
        return self.passes or all(fit.low > MOST_OF_USUAL for fit in self.fits)

    @property
    def advice(self) -> str:
        """What to check first where it does not pass."""
        best = self.fits[0]
        where = "outside all places" if best.is_outside else "of all tokens"
        text = (
            f"It leaves {best.residual:.2g} nat of {best.engine} {where}, where"
            f" {best.usual:.2g} is usual."
        )
        if best.low <= MOST_OF_USUAL:
            return f"{text} These are too few tokens to tell: prove with more samples."
        if all(fit.residual > fit.uninformed for fit in self.fits):
            return (
                f"{text} The same log-prob for all tokens leaves {best.uninformed:.2g}:"
                " check first that the model is of the batch's kind, with its"
                " tokenizer, chat template and processor."
            )
        return (
            f"{text} Check first that it is the checkpoint of this step (others that"
            " are passed as checkpoints= are tried), then the temperature of the"
            " log-probs, then the processor."
        )


def _fit(table: ScoreTable, engine: str) -> Fit:
    truth = table.engines[engine]
    left = np.abs(clip_log_probs(table.base) - clip_log_probs(truth))
    own = np.abs(table.rounding)
    known = np.isfinite(left)
    usual = np.nansum(own) / max(np.nansum(table.spread), 1e-12) * table.spread
    if table.usual is not None and table.is_outside.any():
        known &= table.is_outside
        usual = np.fmax(usual, table.usual)
    ratio, low, high = _bound(table, left, usual, known)
    number = max(int(known.sum()), 1)
    flat = truth[known] - np.median(truth[known]) if known.any() else np.zeros(1)
    return Fit(
        engine=engine,
        ratio=ratio,
        low=low,
        high=high,
        residual=float(left[known].sum()) / number,
        usual=float(usual[known].sum()) / number,
        uninformed=float(np.abs(flat).mean()),
        num_tokens=int(known.sum()),
        is_outside=bool(table.is_outside.any()),
    )


def _bound(
    table: ScoreTable, left: Array, usual: Array, known: Array
) -> tuple[float, float, float]:
    """Return the ratio of two sums over tokens, and its bounds by linearisation."""
    cluster = (
        table.sample[known] * (table.round.max(initial=0) + 1) + table.round[known]
    )
    _, code = np.unique(cluster, return_inverse=True)
    over = np.bincount(code, weights=left[known])
    under = np.bincount(code, weights=usual[known])
    number = len(over)
    if number < 2 or under.sum() <= 0:  # noqa: PLR2004 no spread of one cluster
        return np.nan, -np.inf, np.inf
    ratio = float(over.sum() / under.sum())
    square = float(np.square(over - ratio * under).sum()) * number / (number - 1)
    error = stdtrit(number - 1, _CONFIDENCE) * square**0.5 / float(under.sum())
    return ratio, ratio - error, ratio + error

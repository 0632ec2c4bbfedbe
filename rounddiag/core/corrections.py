"""Corrections of an update for the mismatch: weights of tokens and their effect."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from rounddiag.core.aggregation import means_of_sums
from rounddiag.core.measured import Measured, number_values
from rounddiag.core.scores import tag_as
from rounddiag.core.sums import pack_tokens
from rounddiag.errors import BatchError, FrameError
from rounddiag.schema import CORRECTIONS, find_correction

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.schema import Correction

_BOUND = 20.0  # nats: verl, SkyRL and OpenRLHF clamp a log ratio to it
_EDGE = 1e-6  # probabilities of `binary_kl` are clamped to it, as in verl and OpenRLHF


@dataclass(frozen=True, eq=False, kw_only=True)
class Ratios:
    """The generated tokens whose log ratio is finite, as corrections read them.

    Attributes
    ----------
    kept : bool array, one per generated token
        Which tokens these are.
    sample : int64 array
    a, b : float64 array
        Log-probs of both engines, in nats.
    log_ratio, update : float64 array
        `a - b`; `current - old`, or None where the batch has no score `current`.
    advantage : float64 array
        1 where neither the batch nor the caller has advantages.
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
        chosen = Measured.of(batch, a, b)
        log_ratio = chosen.diff.astype(np.float64)
        kept = np.isfinite(log_ratio)
        pair = chosen.require_batch()
        num = batch.rounds.num_tokens.cpu().numpy()
        sample = np.repeat(batch.rounds.sample.cpu().numpy(), num)
        update = None
        if "current" in batch.scores and chosen.pair.is_standard:
            update = Measured.of(batch, "current", "old").diff.astype(np.float64)
            kept &= np.isfinite(update)
        weight = _advantages(batch, sample, advantages)
        return cls(
            kept=kept,
            sample=sample[kept],
            a=pack_tokens(pair, pair.old_log_probs)[kept].astype(np.float64),
            b=pack_tokens(pair, pair.rollout_log_probs)[kept].astype(np.float64),
            log_ratio=log_ratio[kept],
            update=None if update is None else update[kept],
            advantage=weight[kept],
        )

    @cached_property
    def ratio(self) -> Array:
        """The importance ratio of each token."""
        return np.exp(_bounded(self.log_ratio))

    @cached_property
    def sample_ratio(self) -> Array:
        """The product of the ratios of each token's sample."""
        return np.exp(_bounded(self._over_samples(self.log_ratio, "sum")))

    def statistic(self, correction: Correction) -> Array:
        """Return what decides whether a token is kept, one value per token."""
        if correction.estimator == "prob_diff":
            apart: Array = np.abs(np.exp(self.a) - np.exp(self.b))
            return apart
        if correction.estimator == "binary_kl":
            return _binary_kl(self.a, self.b)
        is_update = correction.weight == "update"
        log_ratio = self._require_update() if is_update else self.log_ratio
        level = correction.level
        if correction.estimator == "ratio":
            if level in ("token", "all") and not is_update:
                return self.ratio
            values: Array = np.exp(_bounded(self._over_samples(log_ratio, level)))
            return values
        log_ratio = _bounded(log_ratio)  # verl clamps each token of a rejection
        if correction.estimator == "k1":
            inverse: Array = np.exp(-_bounded(self._over_samples(log_ratio, level)))
            return inverse
        is_k2 = correction.estimator == "k2"
        values = log_ratio**2 / 2 if is_k2 else np.expm1(log_ratio) - log_ratio
        return self._over_samples(values, level)

    def weights(self, correction: Correction) -> Array:
        """Return what the advantage of each token is multiplied by; 0 where dropped."""
        value, (low, high) = self.statistic(correction), correction.bounds
        if correction.weight == "update":
            # PPO stops the gradient only where the ratio left the range already.
            above = (value > high) & (self.advantage > 0)
            below = (value < low) & (self.advantage < 0)
            found: Array = np.where(above | below, 0.0, value)
            return found
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
            raise BatchError.build(
                key="current",
                expected="a score `current` for a correction of the update ratio",
                found="a batch without it",
                advice="Save the log-probs of the update in `scores`, or leave"
                " `ppo_clip` and `gspo_clip` out.",
            )
        return self.update

    def _over_samples(self, values: Array, level: str) -> Array:
        """Sum or average over each sample; values of other levels stay as they are."""
        if level not in ("sum", "mean"):
            return values
        total = np.bincount(self.sample, weights=values)
        if level == "mean":
            total = means_of_sums(total, np.bincount(self.sample))
        found: Array = total[self.sample]
        return found


def corrections(
    batch: Batch,
    names: Sequence[str | Correction] | None = None,
    *,
    advantages: Array | None = None,
    by: str | None = None,
    a: str = "old",
    b: str = "rollout",
) -> pd.DataFrame:
    r"""Return what each correction does to the update: weights, and what it drops.

    Parameters
    ----------
    batch : Batch
    names : sequence of str or Correction, optional
        Names of `rounddiag.schema.CORRECTIONS`, or records of your own. All of them
        where left out, those of the update only for the standard pair of a batch with a
        score `current`.
    advantages : array, optional
        One per sample or per generated token, in place of the batch's own. Without
        any, every token counts as much.
    by : str, optional
        A column of tokens, rounds or samples: a row for each of its values too.
    a, b : str
        The scores of the ratio :math:`\pi_a / \pi_b`.

    Returns
    -------
    DataFrame
        A row per correction, with `by` one per value of it: `correction`; `num_tokens`;
        `tokens_kept` and `samples_kept`, shares; `mean_weight`;
        `effective_sample_size`, :math:`(\sum w)^2 / (n \sum w^2)` over the tokens, 0 to
        1; `gradient_share`, the part of the step's :math:`\sum |A w|` in this row;
        `gradient_kept`, its :math:`\sum |A w|` over that without correction; `cosine`
        of the weights :math:`A w` and :math:`A`, and `max_weight`. Tokens whose log
        ratio is not finite are left out: `attrs["num_nonfinite"]`.

    Raises
    ------
    BatchError
        If the batch has no such score.
    FrameError
        If a name is unknown, or the advantages do not fit.

    Notes
    -----
    The formulas are those of verl 0.9 (`rollout_corr_helper`), SkyRL 0.3, TRL 1.16 and
    OpenRLHF 0.11, with a log ratio clamped to 20 nats. A sequence is a sample.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rows = rd.corrections(batch, ["none", "tis", "sequence_tis"])
    >>> rows["tokens_kept"].tolist()
    [1.0, 1.0, 1.0]
    """
    import pandas as pd

    ratios = Ratios.of(batch, a, b, advantages)
    if names is None:
        has_update = ratios.update is not None
        chosen = [c for c in CORRECTIONS.values() if has_update or c.weight != "update"]
    else:
        chosen = [find_correction(name) for name in names]
    code, values = np.zeros(len(ratios.sample), dtype=np.int64), [None]
    if by is not None:
        column = Measured.of(batch, a, b).tokens(by)[by].to_numpy()[ratios.kept]
        code, found = number_values(by, column)
        values = found.tolist()
    parts = _Parts.of(code, ratios.sample, len(values))
    frames = [
        _measure(ratios, one, parts).assign(correction=one.name) for one in chosen
    ]
    rows = pd.concat(frames, ignore_index=True)
    if by is not None:
        rows[by] = values * len(chosen)
    keys = ["correction", *([by] if by is not None else [])]
    rows = rows[[*keys, *(name for name in rows if name not in keys)]]
    rows.attrs["num_nonfinite"] = int((~ratios.kept).sum())
    return tag_as(rows, Measured.of(batch, a, b).pair)


def token_weights(batch: Batch, name: str | Correction) -> Array:
    """Return the weight that a correction gives each generated token, NaN if undefined.

    0 where it drops the token.

    Examples
    --------
    >>> import rounddiag as rd
    >>> token_weights(rd.load("sample_data/healthy.parquet"), "none")[:2]
    array([1., 1.], dtype=float32)
    """
    ratios = Ratios.of(batch, "old", "rollout", None)
    found = np.full(len(ratios.kept), np.nan, dtype=np.float32)
    found[ratios.kept] = ratios.weights(find_correction(name))
    return found


@dataclass(frozen=True, eq=False, kw_only=True)
class _Parts:
    """A division of tokens by the values of a column.

    Attributes
    ----------
    code : int array
        The value of each token, by its number.
    num : int array
        Tokens of each value.
    pair, value : int array
        Which value and sample a token is in; the value of each such pair.
    """

    code: Array
    num: Array
    pair: Array
    value: Array

    @classmethod
    def of(cls, code: Array, sample: Array, num_values: int) -> _Parts:
        width = int(sample.max(initial=0)) + 1
        known, pair = np.unique(code * width + sample, return_inverse=True)
        num = np.bincount(code, minlength=num_values)
        return cls(code=code, num=num, pair=pair, value=known // width)

    def add(self, values: Array) -> Array:
        """Sum values of tokens."""
        if len(self.num) == 1:  # much faster
            return np.array([values.sum()])
        found: Array = np.bincount(
            self.code, weights=values, minlength=len(self.num)
        ).astype(np.float64)
        return found

    def share_of_samples(self, kept: Array) -> Array:
        """Return the share of samples with a token that is kept."""
        alive = np.bincount(self.pair, weights=kept, minlength=len(self.value)) > 0
        sizes = [
            np.bincount(v, minlength=len(self.num))
            for v in (self.value[alive], self.value)
        ]
        return means_of_sums(sizes[0].astype(np.float64), sizes[1])


def _measure(ratios: Ratios, correction: Correction, parts: _Parts) -> pd.DataFrame:
    """Return a row for each value of a column."""
    import pandas as pd

    weight, plain = ratios.weights(correction), np.abs(ratios.advantage)
    kept, pulled = (weight > 0).astype(np.float64), plain * weight
    largest = np.full(len(parts.num), np.nan)
    np.fmax.at(largest, parts.code, weight)
    total, norm = parts.add(weight), np.sqrt(parts.add(plain**2) * parts.add(pulled**2))
    with np.errstate(invalid="ignore", divide="ignore"):
        return pd.DataFrame(
            {
                "num_tokens": parts.num,
                "tokens_kept": parts.add(kept) / parts.num,
                "samples_kept": parts.share_of_samples(kept),
                "mean_weight": total / parts.num,
                "max_weight": largest,
                "effective_sample_size": total**2 / (parts.num * parts.add(weight**2)),
                "gradient_share": parts.add(pulled) / pulled.sum(),
                "gradient_kept": parts.add(pulled) / parts.add(plain),
                "cosine": parts.add(plain * pulled) / norm,
            }
        )


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


def _bounded(log_ratio: Array) -> Array:
    return np.clip(log_ratio, -_BOUND, _BOUND)


def _binary_kl(a: Array, b: Array) -> Array:
    """Return the larger Kullback-Leibler divergence of two Bernoulli distributions."""
    p, q = (np.clip(np.exp(one), _EDGE, 1 - _EDGE) for one in (a, b))
    odds, rest = np.log(p / q), np.log((1 - p) / (1 - q))
    forward, reverse = p * odds + (1 - p) * rest, -q * odds - (1 - q) * rest
    found: Array = np.maximum(forward, reverse)
    return found

"""What corrections of an update for the mismatch do to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.core.aggregation import means_of_sums
from rounddiag.core.loss_ratio import trainers_rule
from rounddiag.core.measured import Measured, number_values
from rounddiag.core.scores import tag_as
from rounddiag.core.weights import Ratios
from rounddiag.errors import FrameError
from rounddiag.schema import CORRECTIONS, Correction, find_correction

if TYPE_CHECKING:
    import pandas as pd


def corrections(
    batch: Batch,
    names: Sequence[str | Correction] | None = None,
    *,
    advantages: Array | None = None,
    by: str | None = None,
    a: str | None = None,
    b: str | None = None,
) -> pd.DataFrame:
    r"""Return what each correction does to the update: weights, and what it drops.

    Parameters
    ----------
    batch : Batch
    names : sequence of str or Correction, optional
        Names of `rounddiag.schema.CORRECTIONS`, or records of your own. Left out, the
        rule of the run, where its settings are recorded (`attrs["own_rule"]`), and all
        presets; those of the update only where the batch has a score `current`.
    advantages : array, optional
        One per sample or per generated token, in place of the batch's own. Without
        any, every token counts as much.
    by : str, optional
        A column of tokens, rounds or samples: a row for each of its values too.
    a, b : str, optional
        The scores of the ratio :math:`\pi_a / \pi_b`. Left out, it is the one that the
        loss of this batch used: old / rollout, or current / rollout in a bypass.

    Returns
    -------
    DataFrame
        A row per correction, with `by` one per value of it. `num_tokens` that the loss
        counts, `num_left_out` of them, whose weight is NaN or infinite, as in the
        trainer; `tokens_kept` and `samples_kept`, shares; `share_at_limit`, of tokens
        whose weight is clipped; `mean_weight` and `max_weight`;
        `effective_sample_size`, :math:`(\sum w)^2 / (n \sum w^2)`, 0 to 1;
        `gradient_share`, the part of the step's :math:`\sum |A w|` in this row;
        `gradient_kept`, its :math:`\sum |A w|` over that without correction; `cosine`
        of :math:`A w` and :math:`A`; `moved`, :math:`\|A (w - 1)\| / \|A\|`, how far
        the step moves; `bias_left`, :math:`\|A (w - r)\| / \|A r\|` with the whole
        ratio r, up to 20 nats.

        The name of `columns`, in the corner of a printed frame, is the ratio, or the
        two that are possible. `attrs` has `ratio`, `why` it is this one,
        `has_advantages`, and `num_nonfinite` log ratios.

    Notes
    -----
    Where a mask shrinks the mask of the loss (`Mask.shrinks`: verl's rejection), its
    mean over tokens divides by those that are left, and so do `mean_weight`,
    `gradient_kept`, `moved` and `bias_left`. The formulas, also at infinite and unknown
    ratios, are those of the source of each record. A sequence is a sample.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/image_window.parquet")
    >>> rows = rd.corrections(batch, ["none", "tis", "sequence_tis"])
    >>> rows.columns.name, rows["share_at_limit"].round(3).tolist()
    ('old / rollout', [0.0, 0.001, 0.046])
    """
    import pandas as pd

    ratios = Ratios.of(batch, a, b, advantages)
    own = trainers_rule(batch) if names is None else None
    chosen = [*map(find_correction, CORRECTIONS if names is None else names)]
    if not chosen:
        raise FrameError.build(
            key="names",
            expected="one correction or more",
            found="none",
            advice="Leave it out for all of them.",
        )
    if names is None:
        others = (rule for rule in chosen if own is None or rule.name != own.name)
        offered = [*([] if own is None else [own]), *others]
        chosen = [rule for rule in offered if rule.ratios <= {*ratios.log_ratios}]
    code, values = np.zeros(len(ratios.sample), dtype=np.int64), [None]
    pair = ratios.chosen.pair
    if by is not None:
        column = Measured.of(batch, pair.a, pair.b).tokens(by)[by].to_numpy()
        code, groups = number_values(by, column[ratios.in_loss])
        values = groups.tolist()
    step = _Step.of(ratios, code, len(values))
    parts = [step.measure(rule) for rule in chosen]
    names_of_rows = np.repeat([rule.name for rule in chosen], len(values))
    columns: dict[str, Any] = {"correction": names_of_rows}
    if by is not None:
        columns[by] = values * len(chosen)
    for name in parts[0]:
        columns.setdefault(name, np.concatenate([part[name] for part in parts]))
    rows = pd.DataFrame(columns)
    rows.columns.name = ratios.chosen.name
    rows.attrs = {
        "ratio": ratios.chosen.name,
        "why": ratios.chosen.why,
        "has_advantages": ratios.has_advantages,
        **({} if own is None else {"own_rule": own.name}),
        "num_nonfinite": int((~np.isfinite(ratios.log_ratios["mismatch"])).sum()),
    }
    return tag_as(rows, pair)


def find_unbeaten(rows: pd.DataFrame) -> set[str]:
    """Return the corrections that no other beats on both bias and sample size."""
    names, bias, size = (
        rows[name].to_numpy()
        for name in ("correction", "bias_left", "effective_sample_size")
    )
    is_beaten = (bias[None] < bias[:, None]) & (size[None] > size[:, None])
    return {*names[~is_beaten.any(axis=1) & np.isfinite(bias + size)]}


@dataclass(frozen=True, eq=False, kw_only=True)
class _Step:
    """The tokens of a step, divided by the values of a column.

    Attributes
    ----------
    code: The value of each token, by its number.
    num: Tokens of each value.
    pair, value: Which value and sample a token is in; the value of each such pair.
    size, square: |A| and its square.
    """

    ratios: Ratios
    code: Array
    num: Array
    pair: Array
    value: Array
    size: Array
    square: Array

    @classmethod
    def of(cls, ratios: Ratios, code: Array, num_values: int) -> _Step:
        width = ratios.num_samples + 1
        known, pair = code * width + ratios.sample, code
        if num_values > 1:  # a sort, that one value does not need
            known, pair = np.unique(known, return_inverse=True)
        size = np.abs(ratios.advantage)
        return cls(
            ratios=ratios,
            code=code,
            num=np.bincount(code, minlength=num_values),
            pair=pair,
            value=known // width,
            size=size,
            square=size**2,
        )

    def add(self, values: Array, factors: Array | None = None) -> Array:
        """Sum values of tokens, or their products with factors."""
        if len(self.num) == 1:  # much faster
            total = values.sum() if factors is None else np.dot(values, factors)
            return np.array([total], dtype=np.float64)
        num, products = len(self.num), values if factors is None else values * factors
        return np.bincount(self.code, weights=products, minlength=num).astype(float)

    def count(self, is_counted: Array) -> Array:
        """Count tokens."""
        if len(self.num) == 1:
            return np.array([np.count_nonzero(is_counted)])
        return np.bincount(self.code[is_counted], minlength=len(self.num))

    @cached_property
    def sums(self) -> tuple[Array, Array]:
        """Sum |A| and its square."""
        return self.add(self.size), self.add(self.square)

    @cached_property
    def known(self) -> tuple[_Step, Array, Array]:
        """The tokens whose whole ratio is known, that ratio, and its norm."""
        step, whole = self, self.ratios.whole
        if np.isnan(whole.sum()):
            square = np.where(np.isnan(whole), 0.0, self.square)
            step, whole = replace(self, square=square), np.nan_to_num(whole)
        return step, whole, step.norm(whole)

    def largest(self, weight: Array) -> tuple[Array, Array]:
        """Return the largest weight, and the share of samples with one above 0."""
        if len(self.num) == 1:
            of_samples = np.maximum.reduceat(weight, self.ratios.starts)
            return of_samples.max(keepdims=True), (of_samples > 0).mean(keepdims=True)
        of_samples = np.zeros(len(self.value))
        np.maximum.at(of_samples, self.pair, weight)
        largest = np.full(len(self.num), np.nan)
        np.fmax.at(largest, self.value, of_samples)
        num_above, num = (
            np.bincount(values, minlength=len(self.num))
            for values in (self.value[of_samples > 0], self.value)
        )
        return largest, means_of_sums(num_above.astype(np.float64), num)

    @np.errstate(invalid="ignore", divide="ignore")
    def measure(self, correction: Correction) -> dict[str, Array]:
        """Return columns with an entry for each value of the column."""
        weighed = self.ratios.weigh(correction)
        weight, step, num = weighed.weight, self, self.num
        if not np.isfinite(weight.sum()):
            is_known = np.isfinite(weight)
            weight, size, square = (
                np.where(is_known, values, 0.0)
                for values in (weight, self.size, self.square)
            )
            step, num = replace(self, size=size, square=square), self.count(is_known)
        # The loss's mean over tokens divides by those that are left.
        scale = len(weight) / weighed.num_left if weighed.num_left else 1.0
        total, pulled = self.add(weight), step.add(step.size, weight)
        largest, samples_kept = (
            self.largest(weight) if len(weight) else (self.num * np.nan,) * 2
        )
        plain, norm = step.sums[0], np.sqrt(step.sums[1])
        known, whole, whole_norm = step.known
        return {
            "num_tokens": self.num,
            "num_left_out": self.num - num,
            "tokens_kept": self.count(weight > 0) / num,
            "samples_kept": samples_kept,
            "share_at_limit": self.count(weighed.is_clipped) / num,
            "mean_weight": scale * total / num,
            "max_weight": largest,
            "effective_sample_size": total**2 / (num * self.add(weight, weight)),
            "gradient_share": pulled / pulled.sum(),
            "gradient_kept": scale * pulled / plain,
            "cosine": step.add(step.square, weight) / (norm * step.norm(weight)),
            "moved": step.norm(scale * weight - 1) / norm,
            "bias_left": known.norm(scale * weight - whole) / whole_norm,
        }

    def norm(self, values: Array) -> Array:
        """Return the norm of A times values."""
        return np.sqrt(self.add(self.square * values, values))

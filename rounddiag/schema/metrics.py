"""METRICS: the one list of metrics.

Columns of frames, axes, heatmaps, the explorer's controls, messages and filters follow
from it. A new metric is a record here, and its definition in `core.divergence`, which
joins the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from rounddiag.errors import require_one_of
from rounddiag.schema.columns import LENGTH_UNIT, ColumnSchema


@dataclass(frozen=True)
class Metric(ColumnSchema):
    """A quantity defined for every token, and its mean over tokens.

    As a column it is that mean: `unit` and `meaning` describe the mean.

    Attributes
    ----------
    mean: Name of the mean's column, if it is not the metric's own name.
    source_column: The column of the token frame from which a token's value is computed.
    of: What has a value: a pair of log-probs, one engine's, or a round.
    is_signed: Whether a value can be negative.
    upper_bound: Largest possible value.
    weight: What has equal weight in the mean, if the metric fixes it; else callers
        choose.
    round_column: The column of round frames that has the mean (from `core.sums`), if
        any. Metrics that differ in their weight only share a column.
    in_summary: `round_summary` has the mean as a column of its own.
    meaning_in_cells: What a heatmap calls the mean, if not `meaning`: options have
        their defaults.
    color_range: The means between which the explorer's colours differ, the same in
        every batch; None if nothing is sound in every batch: the range of its cells.
    short, hint: Label and tooltip of its button in the explorer, if that offers it.
    """

    mean: str = ""
    source_column: str = "diff"
    of: Literal["pair", "engine", "round"] = "pair"
    is_signed: bool = False
    upper_bound: float = math.inf
    weight: Literal["token", "sample"] | None = None
    round_column: str = ""
    in_summary: bool = False
    meaning_in_cells: str = ""
    color_range: tuple[float, float] | None = (0.003, 3.0)
    short: str = ""
    hint: str = ""

    @property
    def in_rounds(self) -> bool:
        """Whether the mean is a column of round frames under its own name."""
        return self.round_column == self.mean_column.name

    @property
    def mean_column(self) -> ColumnSchema:
        """The column of the mean.

        Examples
        --------
        >>> METRICS["abs_diff"].mean_column.name, METRICS["k3"].mean_column.name
        ('mean_abs_diff', 'k3')
        """
        name = self.mean or self.name
        return ColumnSchema(name, self.meaning, self.dtype, self.unit)

    @property
    def cell_column(self) -> ColumnSchema:
        """The column of the mean in `CELLS`."""
        meaning = self.meaning_in_cells or self.meaning
        return replace(self.mean_column, meaning=meaning)


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            "abs_diff",
            "mean |{a} − {b}| log-prob",
            mean="mean_abs_diff",
            unit="nat",
            round_column="mean_abs_diff",
            in_summary=True,
            short="|diff|",
            hint="mean |diff| of the log-probs, in nats",
        ),
        Metric(
            "diff",
            "mean {a} − {b} log-prob",
            mean="mean_diff",
            unit="nat",
            is_signed=True,
            round_column="mean_diff",
            in_summary=True,
            short="signed",
            hint="mean diff of the log-probs, in nats",
        ),
        Metric(
            "prob_diff",
            "mean |{a} − {b}| probability",
            source_column="prob_diff",
            upper_bound=1,
            in_summary=True,
            color_range=(0.001, 1.0),
        ),
        Metric("k1", "mean k1 estimate of KL({b} | {a})", unit="nat", is_signed=True),
        Metric("k2", "mean k2 estimate of KL({b} | {a})", unit="nat"),
        Metric(
            "k3",
            "mean k3 estimate of KL({b} | {a})",
            unit="nat",
            round_column="k3",
            in_summary=True,
            color_range=(5e-6, 5.0),  # what 0.003 to 3 nat makes of it
        ),
        Metric("chi2", "chi-squared divergence of {a} from {b}", is_signed=True),
        Metric(
            "beyond",
            "share of tokens whose importance ratio is beyond limits",
            upper_bound=1,
            color_range=(0.001, 1.0),
            meaning_in_cells="share of tokens beyond a ratio of 2",
        ),
        Metric(
            "share_equal",
            "share of tokens whose {a} and {b} log-probs are bitwise equal",
            upper_bound=1,
        ),
        Metric(
            "after_first_unequal",
            "share of tokens from the first unequal one of their sample on",
            source_column="equal_so_far",
            upper_bound=1,
            color_range=(0.001, 1.0),
            short="unequal",
            hint="share of tokens from the first of their sample on whose log-probs are"
            " not bitwise equal",
        ),
        Metric(
            "clip_share",
            "share of tokens whose {a} / {b} ratio is outside 0.8 to 1.2",
            upper_bound=1,
        ),
        # Of batches with one engine's log-probs, or none.
        Metric(
            "surprise",
            "mean surprise (−log-prob)",
            unit="nat",
            source_column="surprise",
            of="engine",
            color_range=None,
            short="surprise",
            hint="mean −log-prob by the one engine that the batch has, in nats",
        ),
        Metric(
            "entropy",
            "mean entropy of the training engine",
            unit="nat",
            source_column="entropy",
            of="engine",
            color_range=None,
            short="entropy",
            hint="mean entropy of the training engine, in nats",
        ),
        Metric(
            "round_length",
            "mean length of a round",
            unit=LENGTH_UNIT,
            source_column="round_length",
            of="round",
            weight="sample",
            color_range=None,
            short="length",
            hint="generated tokens of a round",
        ),
        Metric(
            "round_seconds",
            "mean time of a round",
            unit="s",
            source_column="round_seconds",
            of="round",
            weight="sample",
            color_range=None,
            short="time",
            hint="seconds that a round took",
        ),
        Metric(
            "round_reward",
            "mean reward of a step",
            source_column="round_reward",
            of="round",
            weight="sample",
            is_signed=True,
            color_range=None,
            short="reward",
            hint="reward of the step that a round took",
        ),
        Metric(
            "round_change",
            "mean share of the picture that changed",
            source_column="round_change",
            of="round",
            weight="sample",
            upper_bound=1,
            color_range=None,
            short="change",
            hint="share of the picture that changed after a round",
        ),
        # As trainers log them.
        Metric(
            "train_rollout_logprob_abs_diff",
            "mean of sample means of |{a} − {b}| log-prob (slime)",
            unit="nat",
            weight="sample",
            round_column="mean_abs_diff",
        ),
        Metric(
            "mismatch_kl",
            "mean k3 of {a} − {b} (prime-rl)",
            unit="nat",
            weight="token",
            round_column="k3",
        ),
        Metric(
            "token_mult_prob_error",
            "mean factor between {a} and {b} probability (NeMo-RL)",
            weight="token",
        ),
    )
}
# Metrics whose mean's column has another name.
MEAN_COLUMNS = {metric.name: metric.mean for metric in METRICS.values() if metric.mean}
_METRIC_BY_COLUMN = {column: metric for metric, column in MEAN_COLUMNS.items()}


def metric_name(name: str) -> str:
    """Return the metric for its own name or for its mean's column."""
    if name in [*_METRIC_BY_COLUMN]:
        return _METRIC_BY_COLUMN[name]
    require_one_of(name, sorted(METRICS), key="metric", advice="Name one of these.")
    return name


def mean_column(name: str) -> str:
    """Return the column of a metric's mean; any other name is returned as it is."""
    return MEAN_COLUMNS[name] if name in [*MEAN_COLUMNS] else name

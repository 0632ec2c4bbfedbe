"""METRICS: the one list of metrics.

Columns of frames, axes, heatmaps, the explorer's controls, messages and filters follow
from it. A new metric is a record here, and its definition in `core.divergence`, which
joins the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from rounddiag.errors import FrameError, nearest
from rounddiag.schema.columns import Column


@dataclass(frozen=True, kw_only=True)
class Metric(Column):
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
    in_explorer: The explorer offers the metric.
    short, hint: Label and tooltip of its button in the explorer.
    """

    dtype: str = "float64"
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
    in_explorer: bool = False
    short: str = ""
    hint: str = ""

    @property
    def in_rounds(self) -> bool:
        """Whether the mean is a column of round frames under its own name."""
        return self.round_column == self.mean_column.name

    @property
    def mean_column(self) -> Column:
        """The column of the mean.

        Examples
        --------
        >>> METRICS["abs_diff"].mean_column.name, METRICS["k3"].mean_column.name
        ('mean_abs_diff', 'k3')
        """
        return Column(
            name=self.mean or self.name,
            dtype=self.dtype,
            unit=self.unit,
            meaning=self.meaning,
        )

    @property
    def cell_column(self) -> Column:
        """The column of the mean in `CELLS`."""
        return Column(
            name=self.mean or self.name,
            dtype=self.dtype,
            unit=self.unit,
            meaning=self.meaning_in_cells or self.meaning,
        )


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            name="abs_diff",
            mean="mean_abs_diff",
            unit="nat",
            meaning="mean |{a} − {b}| log-prob",
            round_column="mean_abs_diff",
            in_summary=True,
            in_explorer=True,
            short="|diff|",
            hint="mean |diff| of the log-probs, in nats",
        ),
        Metric(
            name="diff",
            mean="mean_diff",
            unit="nat",
            meaning="mean {a} − {b} log-prob",
            is_signed=True,
            round_column="mean_diff",
            in_summary=True,
            in_explorer=True,
            short="signed",
            hint="mean diff of the log-probs, in nats",
        ),
        Metric(
            name="prob_diff",
            meaning="mean |{a} − {b}| probability",
            source_column="prob_diff",
            upper_bound=1,
            in_summary=True,
            color_range=(0.001, 1.0),
            in_explorer=True,
            short="|Δp|",
            hint="mean |difference| of the probabilities",
        ),
        Metric(
            name="k1",
            unit="nat",
            meaning="mean k1 estimate of KL({b} | {a})",
            is_signed=True,
        ),
        Metric(name="k2", unit="nat", meaning="mean k2 estimate of KL({b} | {a})"),
        Metric(
            name="k3",
            unit="nat",
            meaning="mean k3 estimate of KL({b} | {a})",
            round_column="k3",
            in_summary=True,
            color_range=(5e-6, 5.0),  # what 0.003 to 3 nat makes of it
            in_explorer=True,
            short="k3",
            hint="mean k3 estimate of the KL divergence",
        ),
        Metric(
            name="chi2",
            meaning="chi-squared divergence of {a} from {b}",
            is_signed=True,
        ),
        Metric(
            name="beyond",
            meaning="share of tokens whose importance ratio is beyond limits",
            upper_bound=1,
            color_range=(0.001, 1.0),
            meaning_in_cells="share of tokens beyond a ratio of 2",
        ),
        Metric(
            name="share_equal",
            meaning="share of tokens whose {a} and {b} log-probs are bitwise equal",
            upper_bound=1,
        ),
        Metric(
            name="after_first_unequal",
            source_column="equal_so_far",
            meaning="share of tokens from the first unequal one of their sample on",
            upper_bound=1,
            color_range=(0.001, 1.0),
            in_explorer=True,
            short="unequal",
            hint="share of tokens from the first of their sample on whose log-probs are"
            " not bitwise equal",
        ),
        Metric(
            name="clip_share",
            meaning="share of tokens whose {a} / {b} ratio is outside 0.8 to 1.2",
            upper_bound=1,
        ),
        # Of batches with one engine's log-probs, or none.
        Metric(
            name="surprise",
            unit="nat",
            meaning="mean surprise, −log-prob by one engine",
            source_column="surprise",
            of="engine",
            color_range=None,
            in_explorer=True,
            short="surprise",
            hint="mean −log-prob by the one engine that the batch has, in nats",
        ),
        Metric(
            name="entropy",
            unit="nat",
            meaning="mean entropy of the training engine",
            source_column="entropy",
            of="engine",
            color_range=None,
            in_explorer=True,
            short="entropy",
            hint="mean entropy of the training engine, in nats",
        ),
        Metric(
            name="round_length",
            unit="token",
            meaning="mean length of a round",
            source_column="round_length",
            of="round",
            weight="sample",
            color_range=None,
            in_explorer=True,
            short="length",
            hint="generated tokens of a round",
        ),
        Metric(
            name="round_seconds",
            unit="s",
            meaning="mean time of a round",
            source_column="round_seconds",
            of="round",
            weight="sample",
            color_range=None,
            in_explorer=True,
            short="time",
            hint="seconds that a round took",
        ),
        Metric(
            name="round_reward",
            meaning="mean reward of a step",
            source_column="round_reward",
            of="round",
            weight="sample",
            is_signed=True,
            color_range=None,
            in_explorer=True,
            short="reward",
            hint="reward of the step that a round took",
        ),
        # As trainers log them.
        Metric(
            name="train_rollout_logprob_abs_diff",
            unit="nat",
            meaning="mean of sample means of |{a} − {b}| log-prob (slime)",
            weight="sample",
            round_column="mean_abs_diff",
        ),
        Metric(
            name="mismatch_kl",
            unit="nat",
            meaning="mean k3 of {a} − {b} (prime-rl)",
            weight="token",
            round_column="k3",
        ),
        Metric(
            name="token_mult_prob_error",
            meaning="mean factor between {a} and {b} probability (NeMo-RL)",
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
    if name in [*METRICS]:
        return name
    raise FrameError.build(
        key="metric",
        expected=f"one of {sorted(METRICS)}",
        found=repr(name),
        advice=nearest(name, METRICS, "Name one of these."),
    )


def mean_column(name: str) -> str:
    """Return the column of a metric's mean; any other name is returned as it is."""
    return MEAN_COLUMNS[name] if name in [*MEAN_COLUMNS] else name

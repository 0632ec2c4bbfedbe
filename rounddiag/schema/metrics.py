"""What a mean over tokens can be of: the metrics of `round_summary`."""

from __future__ import annotations

from rounddiag.errors import FrameError, nearest
from rounddiag.schema.columns import nat, number

# The column of each metric's mean; `core.divergence` has what it is of one token.
METRICS = {
    column.name: column
    for column in (
        nat("abs_diff", "mean |old - rollout| log-prob", "float64"),
        nat("diff", "mean old - rollout log-prob", "float64"),
        number("prob_diff", "mean |old - rollout| probability"),
        nat("k1", "mean k1 estimate of KL(rollout | old)", "float64"),
        nat("k2", "mean k2 estimate of KL(rollout | old)", "float64"),
        nat("k3", "mean k3 estimate of KL(rollout | old)", "float64"),
        number("chi2", "chi-squared divergence of old from rollout"),
        number("beyond", "share of tokens whose importance ratio is beyond limits"),
        nat(
            "train_rollout_logprob_abs_diff",
            "mean of sample means of |old - rollout| log-prob (slime)",
            "float64",
        ),
        nat("mismatch_kl", "mean k3 of trainer - inference (prime-rl)", "float64"),
    )
}
# The columns of rounds, samples and summaries that have a mean under another name.
MEAN_COLUMNS = {"abs_diff": "mean_abs_diff", "diff": "mean_diff"}
_METRICS_OF = {column: metric for metric, column in MEAN_COLUMNS.items()}


def metric_name(name: str) -> str:
    """Return the metric that a name stands for: its own, or its mean's column.

    Raises
    ------
    FrameError
        If there is no such metric.

    Examples
    --------
    >>> metric_name("mean_abs_diff"), metric_name("k3")
    ('abs_diff', 'k3')
    """
    if name in [*_METRICS_OF]:
        return _METRICS_OF[name]
    if name in [*METRICS]:
        return name
    raise FrameError.build(
        key="metric",
        expected=f"one of {sorted(METRICS)}",
        found=repr(name),
        advice=nearest(name, METRICS, "Name one of these."),
    )


def mean_column(name: str) -> str:
    """Return the column of a metric's mean; any other name is returned as it is.

    Examples
    --------
    >>> mean_column("abs_diff"), mean_column("k3"), mean_column("max_abs_diff")
    ('mean_abs_diff', 'k3', 'max_abs_diff')
    """
    return MEAN_COLUMNS[name] if name in [*MEAN_COLUMNS] else name

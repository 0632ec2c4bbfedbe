"""One row per round: how far the two engines are apart, and how sure that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from rounddiag import schema
from rounddiag.batch import Batch
from rounddiag.core.measures import measure_of
from rounddiag.core.pairs import paired, told
from rounddiag.stats.captured import fair_part, rows_of_all
from rounddiag.stats.estimator import Estimator
from rounddiag.stats.measuring import need_column
from rounddiag.stats.resampling import Resampling
from rounddiag.stats.rows import row_of, runs_by_key
from rounddiag.stats.runs import runs_of_batch, runs_of_frame

if TYPE_CHECKING:
    from typing import Any

    from rounddiag.stats.runs import Runs


def round_summary(  # noqa: PLR0913 all but the first are keywords
    batch: Batch | pd.DataFrame,
    *,
    metric: str = "abs_diff",
    weight: str = "token",
    ci: float = 0.95,
    cluster: str | None = None,
    last_aligned: bool = False,
    a: str = "old",
    b: str = "rollout",
    by: str | None = None,
    threshold: float = 2.0,
) -> pd.DataFrame:
    r"""Summarise each round over all samples, with the columns of `schema.SUMMARY`.

    Means are over tokens (sum over tokens divided by their number), so that they equal
    what pull request 5229 of verl logs; with `weight="sample"` they are means of sample
    means. Tokens whose diff is not finite are left out and counted in `num_nonfinite`.
    Quantiles, `max` and `share_zero` are of the metric's tokens, whatever the weight.

    A file of a `Recorder` with `max_samples` gives the rows of all samples that the
    trainer had, as long as `metric`, `weight`, the pair and the rounds are the default
    ones and there is no `by`. Anything else, and a selection of its samples, is of
    those that were drawn and not picked as the worst.

    Parameters
    ----------
    batch : Batch or DataFrame
        A batch, or a token frame.
    metric : str
        With :math:`d` the diff of a token: `abs_diff` :math:`|d|`, `diff` :math:`d`,
        `k1` :math:`-d`, `k2` :math:`d^2 / 2`, `k3` :math:`e^d - 1 - d` (estimates of
        KL(rollout, old)), all in nats; `chi2` :math:`e^{2d} - 1` with :math:`d` limited
        to 20; `beyond`, the share of tokens with :math:`e^d` outside
        [1 / threshold, threshold]; `prob_diff`, verl's |difference of probabilities|.
        As trainers log them: `train_rollout_logprob_abs_diff` (slime: |d| by sample)
        and `mismatch_kl` (prime-rl: k3 by token), whatever `weight` is. The columns of
        means, `mean_abs_diff` and `mean_diff`, are names of their metrics everywhere.
    weight : {"token", "sample"}
        What counts alike in `mean`.
    ci : float
        How often the interval should cover, from 0 to 1.
    cluster : {"sample", "group"}, optional
        What is drawn as a whole for the interval; groups where there are groups (in a
        frame, a column `group_id`) when left out.
    last_aligned : bool
        Count rounds from the end of each sample: the last one is -1.
    a, b : str
        The scores to compare; a frame has those that it was made with.
    by : str, optional
        A column of samples or rounds, `group_id` or `reward` say: one row per value and
        round, and the value comes first. At most 100 values.
    threshold : float
        Of `beyond`.

    Returns
    -------
    DataFrame
        One row per round, ordered. `mean` and what follows up to `max` are in the unit
        of the metric (`schema.METRICS` names it). `is_few` marks rounds of fewer than
        10 samples, or of fewer than 10 groups where groups are drawn: their interval
        says little. `prob_diff` is there when the batch, or
        the frame's `prob_diff` or `rollout_log_prob`, tells the probabilities. Of
        another pair than the standard one, `attrs["pair"]` names both.

    Raises
    ------
    FrameError
        If a frame lacks a column or has another pair, or an option is none.
    BatchError
        If the batch has no such score.

    Notes
    -----
    The interval is of draws of whole clusters (`stats.resampling.Resampling`); with
    fewer than 5 it is NaN, and so it is where a mean that cannot be negative is 0.
    On simulated batches (heavy-tailed tokens, samples with an effect of their own;
    early rounds, and late ones that the worse samples reach; `Resampling` has the
    figures) intervals that should cover 95 % cover 93 to 96 % where 64 samples or more
    reach the round, and 92 to 95 % where 10 to 32 do. Those that take tokens as
    independent cover 45 to 58 %.

    References
    ----------
    verl, `rollout_corr_helper.py` and pull request 5229; slime, `loss.py`
    (`train_rollout_logprob_abs_diff`); prime-rl, `trainer/rl/loss.py` (`mismatch_kl`).

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {"sample": [0, 0, 1], "round": [0, 1, 0], "diff": [0.5, 1.0, -1.5]}
    ... )
    >>> round_summary(frame)[["round", "num_samples", "mean", "mean_diff"]]
       round  num_samples  mean  mean_diff
    0      0            2   1.0       -0.5
    1      1            1   1.0        1.0
    >>> round_summary(frame, metric="beyond", last_aligned=True)[["round", "mean"]]
       round  mean
    0     -2   0.0
    1     -1   1.0
    """
    metric = schema.metric_name(metric)
    how = Estimator(measure=measure_of(metric, threshold), weight=weight, ci=ci)
    usual = ("abs_diff", "token", False, None)
    if isinstance(batch, Batch):
        batch = paired(batch, a, b)
        is_usual = (metric, weight, last_aligned, by) == usual
        rows = rows_of_all(batch, cluster=cluster, ci=ci) if is_usual else None
        if rows is not None:
            return _frame(rows, [], has_prob=True)
        runs = runs_of_batch(fair_part(batch), by=by)
    else:
        runs = runs_of_frame(batch, a=a, b=b, by=by)
    rows = _rows(runs, how, cluster=cluster, last_aligned=last_aligned)
    columns = [] if by is None else [by]
    return told(_frame(rows, columns, has_prob="prob_diff" in runs.tokens), batch)


def _rows(
    runs: Runs, how: Estimator, *, cluster: str | None, last_aligned: bool
) -> list[dict[str, Any]]:
    """Make a row for each value and round."""
    need_column(runs.tokens, how.measure.column)
    clusters, index = runs.clusters(cluster), runs.aligned(last=last_aligned)
    draws = Resampling(int(clusters.max(initial=-1)) + 1)
    first = int(index.min(initial=0))
    num = int(index.max(initial=0)) - first + 1
    key = runs.codes * num + index - first
    parts = dict(runs_by_key(runs.rounds, key, clusters))
    rows = [row_of(part, runs.tokens, how.measure) for part in parts.values()]
    sums = [(part, sums) for part, (_, sums) in zip(parts.values(), rows, strict=True)]
    means = how.means(sums, draws)
    return [
        {**runs.named(one // num), "round": first + one % num, **row, **mean}
        for one, (row, _), mean in zip(parts, rows, means, strict=True)
    ]


def _frame(
    rows: list[dict[str, Any]], first: list[str], *, has_prob: bool
) -> pd.DataFrame:
    names = [column.name for column in schema.SUMMARY.columns]
    columns = [name for name in names if has_prob or name != "prob_diff"]
    frame = pd.DataFrame(rows, columns=[*first, *columns])
    frame["share_nonfinite"] = frame["num_nonfinite"] / frame["num_tokens"]
    return frame.astype({name: schema.SUMMARY[name].dtype for name in columns})

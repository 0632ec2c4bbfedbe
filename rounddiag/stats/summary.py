"""Summary of each round: mean mismatch with interval, quantiles, counts."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.core.aggregation import means_of_sums
from rounddiag.core.divergence import MEASURES, get_measure
from rounddiag.core.measured import Measured, require_source
from rounddiag.core.round_summary import MEANS, summarize_parts
from rounddiag.errors import refuse
from rounddiag.schema import SUMMARY, metric_name
from rounddiag.stats.grouping import Split, split_rounds_by
from rounddiag.stats.inputs import Data, open_measured
from rounddiag.stats.intervals import MeanEstimator, Resampling, is_few

# Means that a frame without probabilities lacks.
_SUMMARY_MEASURES = tuple(
    measure for measure in MEASURES.values() if measure.in_summary
)
_COPIED = ("sample", "num_tokens", "num_nonfinite")


def _sums_by_run(rounds: pd.DataFrame, cluster: Array) -> dict[str, Array]:
    """Return the columns of a round frame, with sums over finite tokens for means.

    `begin` is the row of the first token in the token frame.
    """
    columns = {name: rounds[name].to_numpy() for name in _COPIED}
    columns["cluster"] = cluster
    columns["begin"] = np.cumsum(columns["num_tokens"]) - columns["num_tokens"]
    columns["num_finite"] = columns["num_tokens"] - columns["num_nonfinite"]
    for name in (name for name in MEANS if name in rounds):
        sums = rounds[name].to_numpy() * columns["num_finite"]
        columns[name] = np.where(columns["num_finite"] > 0, sums, 0)
    return columns


def _round_index(rounds: pd.DataFrame, *, last: bool) -> Array:
    """Return the index of each round; with `last`, counted from the end (-1)."""
    index = rounds["round"].to_numpy()
    if not last:
        return index
    sample = np.unique(rounds["sample"].to_numpy(), return_inverse=True)[1]
    num_rounds = np.zeros(len(index), dtype=index.dtype)
    np.maximum.at(num_rounds, sample, index + 1)
    return index - num_rounds[sample]


@refuse("ci", "Intervals are of 95 %.")
@refuse("cluster", "Without `group_ids`, or `group_id` in a frame, samples are drawn.")
@refuse("threshold", "Compare `diff` of `rounddiag.token_frame(batch)` yourself.")
def round_summary(
    data: Data,
    *,
    metric: str = "abs_diff",
    weight: str = "token",
    last_aligned: bool = False,
    a: str = "old",
    b: str = "rollout",
    by: str | None = None,
) -> pd.DataFrame:
    r"""Summarise each round over all samples, with the columns of `schema.SUMMARY`.

    Means are over tokens (sum over tokens divided by their number), so that they equal
    what pull request 5229 of verl logs; with `weight="sample"` they are means of sample
    means. Tokens whose diff is not finite are left out and counted in `num_nonfinite`.
    Quantiles, `max` and `share_zero` are over tokens, whatever the weight.

    Parameters
    ----------
    data : Batch, DataFrame or path-like
        A batch, its file, or a token frame.
    metric : str
        With :math:`d` the diff of a token: `abs_diff` :math:`|d|`, `diff` :math:`d`,
        `k1` :math:`-d`, `k2` :math:`d^2 / 2`, `k3` :math:`e^d - 1 - d` (estimates of
        KL(rollout, old)), all in nats; `chi2` :math:`e^{2d} - 1` with :math:`d` limited
        to 20; `beyond`, the share of tokens with :math:`e^d` outside
        [0.5, 2]; `prob_diff`, verl's |difference of probabilities|.
        As trainers log them, whatever `weight` is: `train_rollout_logprob_abs_diff`
        (slime: |d| by sample), `mismatch_kl` (prime-rl: k3 by token) and
        `token_mult_prob_error` (NeMo-RL: :math:`e^{|d|}` by token). The columns of
        means, `mean_abs_diff` and `mean_diff`, are names of their metrics everywhere.
    weight : {"token", "sample"}
        What has equal weight in `mean`.
    last_aligned : bool
        Count rounds from the end of each sample: the last one is -1.
    by : str, optional
        A column of samples or rounds, such as `group_id` or `reward`: one row per value
        and round, and the value comes first. At most 100 values.
    a, b : as everywhere, see `help(rounddiag)`

    Returns
    -------
    DataFrame
        One row per round, ordered. `mean` and what follows up to `max` are in the unit
        of the metric (`schema.METRICS` names it). `is_few` marks rounds of fewer than
        5 samples, or of fewer than 5 groups where groups are drawn: their interval
        says little. `prob_diff` is present for a batch, and
        for a frame with `prob_diff` or `rollout_log_prob`. For a pair other than the
        standard one, `attrs["pair"]` names both.

    Notes
    -----
    The interval, of 95 %, is a bootstrap (`stats.intervals.Resampling`) of whole groups
    where there are any (in a frame, a column `group_id`), else of samples. It is
    NaN with fewer than 5 clusters, and for a mean of 0 that cannot be negative.
    On simulated batches (heavy-tailed tokens, samples with an effect of their own;
    early rounds, and late ones that the worse samples reach; `Resampling` has the
    figures) intervals that should cover 95 % cover 93 to 96 % where 64 samples or more
    reach the round, and 92 to 95 % where 10 to 32 do. Intervals that treat tokens as
    independent cover 45 to 58 %.

    References
    ----------
    verl, `rollout_corr_helper.py` and pull request 5229; slime, `loss.py`
    (`train_rollout_logprob_abs_diff`); prime-rl, `trainer/rl/loss.py` (`mismatch_kl`);
    NeMo-RL, `algorithms/loss_functions.py` (`token_mult_prob_error`).

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
    metric = metric_name(metric)
    how = MeanEstimator(measure=get_measure(metric), weight=weight)
    data = open_measured(data, a, b)
    split = None if by is None else split_rounds_by(data, by)
    rows = _rows(data, split, how, last_aligned=last_aligned)
    tokens = data.sources if how.measure.of == "pair" else ()
    summary = pd.DataFrame(_columns(rows, tokens=tokens), copy=False)
    if split is not None:
        split.insert_into(summary, rows["part"])
    return data.tag(summary)


def summary_from_totals(rounds: list[dict[str, Any]]) -> dict[str, Array]:
    """Return the columns of `round_summary`, from totals in the footer of a step file.

    Not as a frame: a run has thousands of them, which become one.
    """
    shape = len(rounds), len(rounds[0]["cluster_tokens"]) if rounds else 0
    totals, counts = (
        np.array([entry[name] for entry in rounds], dtype=np.float64).reshape(shape)
        for name in ("cluster_abs_diff", "cluster_tokens")
    )
    used: Array = np.asarray((counts > 0).any(axis=0))
    used[:1] |= not used.any()  # draws are of one cluster at least
    totals, counts = totals[:, used], counts[:, used]
    draws = Resampling(int(used.sum()))
    # One by one: the product of many is large enough for threads to wait on each other.
    intervals = [
        draws.ratio_interval(*sums) for sums in zip(totals, counts, strict=True)
    ]
    columns: dict[str, Any] = {  # some may be newer than the file
        name: [entry.get(name, np.nan) for entry in rounds] for name in SUMMARY.dtypes
    }
    columns["mean"] = columns["mean_abs_diff"]
    columns["ci_low"], columns["ci_high"] = np.reshape(intervals, (-1, 2)).T
    columns["is_few"] = [is_few(tokens) for tokens in counts]
    return _columns(columns, tokens=("diff", "prob_diff"))


def _rows(
    data: Measured,
    split: Split | None,
    how: MeanEstimator,
    *,
    last_aligned: bool,
) -> dict[str, Any]:
    rounds = data.rounds_of(how.measure)
    sources = data.sources_of(how.measure)
    require_source(sources, how.measure)
    index = _round_index(rounds, last=last_aligned)
    num_finite = (rounds["num_tokens"] - rounds["num_nonfinite"]).to_numpy()
    clusters, num_clusters = _used_clusters(data.clusters[rounds["sample"]], num_finite)
    draws = Resampling(num_clusters)
    first = int(index.min(initial=0))
    num = int(index.max(initial=0)) - first + 1
    codes = np.zeros_like(index) if split is None else split.codes
    key = codes.astype(np.int64) * num + index - first
    order = np.argsort(key, kind="stable")
    columns = _sums_by_run(rounds, clusters)
    columns = {name: values[order] for name, values in columns.items()}
    keys, part = np.unique(key[order], return_inverse=True)
    summary, totals = summarize_parts(columns, part, sources, how.measure)
    means = how.means(part, columns, totals, draws)
    return {
        "part": keys // num,
        "round": first + keys % num,
        **summary,
        **means,
    }


def _used_clusters(clusters: Array, num_finite: Array) -> tuple[Array, int]:
    """Count the clusters with a finite token from 0; return how many there are too.

    The others, which add nothing to any mean, are numbered 0.
    """
    used = np.bincount(clusters, num_finite) > 0
    numbers = np.maximum(used.cumsum() - 1, 0)
    return numbers[clusters], int(used.sum())


def _columns(rows: Mapping[str, Any], *, tokens: Container[str]) -> dict[str, Array]:
    """Return the columns, without the means that these columns of tokens lack."""
    absent = [
        measure.mean_column.name
        for measure in _SUMMARY_MEASURES
        if measure.source_column not in tokens
    ]
    known = {**dict.fromkeys(SUMMARY.dtypes, ()), **rows}
    counts = (np.asarray(known[name]) for name in ("num_nonfinite", "num_tokens"))
    known["share_nonfinite"] = means_of_sums(*counts)
    return {
        name: np.asarray(known[name], dtype=dtype)
        for name, dtype in SUMMARY.dtypes.items()
        if name not in absent
    }

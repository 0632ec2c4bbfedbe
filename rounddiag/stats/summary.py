"""Summary of each round: mean mismatch with interval, quantiles, counts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rounddiag import schema
from rounddiag.batch import Batch
from rounddiag.core import rounds_of_tokens, take_runs
from rounddiag.core.aggregation import means_of_sums, quantiles, run_sums
from rounddiag.core.divergence import MEASURES, get_measure, read_prob_diffs
from rounddiag.core.frames import round_frame_and_diffs
from rounddiag.core.scores import check_pair, select_scores, tag_pair
from rounddiag.core.sums import prob_diffs
from rounddiag.errors import FrameError
from rounddiag.stats.grouping import number_values, split_rounds_by
from rounddiag.stats.inputs import (
    drop_worst_picks,
    require_column,
    require_frame,
    rows_from_totals,
    stored_summary_rows,
)
from rounddiag.stats.intervals import Estimator, Resampling

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from rounddiag._typing import Array
    from rounddiag.core.divergence import TokenMetric
    from rounddiag.stats.grouping import Split


_MEANS = tuple(one.mean_column.name for one in MEASURES.values() if one.in_rounds)
_SUMMARY_MEASURES = tuple(
    one for one in MEASURES.values() if one.in_summary and not one.in_rounds
)
_COPIED = ("sample", "num_tokens", "num_nonfinite")
_QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


_BLOCK = 1 << 16  # tokens of short rounds that are summarised at once


def _sums_by_run(rounds: pd.DataFrame, cluster: Array) -> dict[str, Array]:
    """Return the columns of a round frame, with sums over finite tokens for means.

    `begin` is the row of the first token in the token frame.
    """
    columns = {name: rounds[name].to_numpy() for name in _COPIED}
    columns["cluster"] = cluster
    columns["begin"] = np.cumsum(columns["num_tokens"]) - columns["num_tokens"]
    columns["num_finite"] = columns["num_tokens"] - columns["num_nonfinite"]
    for name in _MEANS:
        sums = rounds[name].to_numpy() * columns["num_finite"]
        columns[name] = np.where(columns["num_finite"] > 0, sums, 0)
    return columns


def _summarise(
    runs: Mapping[str, Array],
    part: Array,
    tokens: Mapping[str, Array],
    measure: TokenMetric,
) -> tuple[dict[str, Array], Array]:
    """Summarise the tokens of each part."""
    blocks = [
        _summarise_block(
            {name: values[rows] for name, values in runs.items()},
            part[rows] - part[rows][0],
            tokens,
            measure,
        )
        for rows in row_blocks(part, runs["num_tokens"])
    ]
    names = blocks[0][0] if blocks else ()
    return (
        {name: np.concatenate([found[name] for found, _ in blocks]) for name in names},
        np.concatenate([np.empty(0), *(totals for _, totals in blocks)]),
    )


def row_blocks(part: Array, num_tokens: Array) -> Iterator[slice]:
    """Yield rows of whole parts, as many at once as stay in cache with their tokens."""
    ends = np.cumsum(np.bincount(part, num_tokens))
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(_BLOCK, total, _BLOCK))
    limits = np.unique([0, *cuts.tolist(), len(ends)])
    yield from starmap(slice, pairwise(np.searchsorted(part, limits).tolist()))


def _summarise_block(
    runs: Mapping[str, Array],
    part: Array,
    tokens: Mapping[str, Array],
    measure: TokenMetric,
) -> tuple[dict[str, Array], Array]:
    first = np.flatnonzero(np.diff(part, prepend=-1))
    added = {
        name: np.add.reduceat(runs[name], first)
        for name in ("num_tokens", "num_nonfinite", "num_finite", *_MEANS)
    }
    num_finite = added.pop("num_finite")
    taken = _finite_tokens(runs, tokens)
    values = measure.values(taken[measure.source_column])
    totals = (
        runs[measure.round_column]
        if measure.round_column
        else run_sums(values, runs["num_finite"])
    )
    found = {
        "num_samples": _num_distinct(part, runs["sample"]),
        "num_tokens": added["num_tokens"],
        "num_nonfinite": added["num_nonfinite"],
        **{name: means_of_sums(added[name], num_finite) for name in _MEANS},
        **distribution(values, num_finite),
    }
    for other in _SUMMARY_MEASURES:
        if other.source_column in taken:
            sums = run_sums(other.values(taken[other.source_column]), num_finite)
            found[other.mean_column.name] = means_of_sums(sums, num_finite)
    return found, totals


def _num_distinct(part: Array, sample: Array) -> Array:
    """Count the distinct samples of each part."""
    width = int(sample.max()) + 1
    pairs = np.unique(part.astype(np.int64) * width + sample)
    return np.bincount(pairs // width)


def _finite_tokens(
    runs: Mapping[str, Array], tokens: Mapping[str, Array]
) -> dict[str, Array]:
    """Copy the tokens of the runs whose diff is finite."""
    place = runs["begin"], runs["num_tokens"]
    taken = {name: take_runs(values, *place) for name, values in tokens.items()}
    if not runs["num_nonfinite"].any():
        return taken
    finite = np.isfinite(taken["diff"])
    return {name: values[finite] for name, values in taken.items()}


def distribution(values: Array, counts: Array) -> dict[str, Array]:
    """Return the largest value of each part, quantiles, and how many values are 0.

    The values, which are concatenated, are reordered in place.
    """
    begins, some = np.cumsum(counts) - counts, counts > 0
    largest = np.full(len(counts), np.nan)
    largest[some] = np.maximum.reduceat(values, begins[some]) if some.any() else ()
    share_zero = 1 - means_of_sums(run_sums(values != 0, counts), counts)
    found = np.full((len(_QUANTILES), len(counts)), np.nan)
    # Parts of the same size are sorted together: there can be very many short ones.
    for size in np.unique(counts[some]).tolist():
        alike = np.flatnonzero(counts == size)
        table = (
            values[begins[alike[0]] :][None, :size]
            if len(alike) == 1
            else values[begins[alike][:, None] + np.arange(size)]
        )
        found[:, alike] = quantiles(table, [*_QUANTILES.values()])
    named = dict(zip(_QUANTILES, found, strict=True))
    return {"share_zero": share_zero, "max": largest, **named}


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Rounds of samples, in the order of their tokens.

    Attributes
    ----------
    rounds : DataFrame
        One row each, with the columns of `schema.ROUNDS`.
    tokens : dict of str to ndarray, shape (num_tokens,)
        `diff`, and `prob_diff` if it is known.
    names : ndarray, shape (num_rounds,), optional
        The group of each round's sample.
    split : Split, optional
        The part of each round.
    """

    rounds: pd.DataFrame
    tokens: dict[str, Array]
    names: Array | None
    split: Split | None

    @property
    def codes(self) -> Array:
        """The part of each round; 0 without parts."""
        if self.split is None:
            return np.zeros(len(self.rounds), dtype=np.int64)
        return self.split.codes

    def round_index(self, *, last: bool) -> Array:
        """Return the index of each round; with `last`, counted from the end (-1)."""
        index = self.rounds["round"].to_numpy()
        if not last:
            return index
        sample = np.unique(self.rounds["sample"].to_numpy(), return_inverse=True)[1]
        num_rounds = np.zeros(len(index), dtype=index.dtype)
        np.maximum.at(num_rounds, sample, index + 1)
        from_end: Array = index - num_rounds[sample]
        return from_end

    def clusters(self, cluster: str | None) -> Array:
        """Return the cluster of each round's sample, counted from 0."""
        if cluster not in (None, "sample", "group"):
            raise FrameError.build(
                key="cluster",
                expected='"sample" or "group"',
                found=repr(cluster),
                advice="Leave it out to resample groups, if the batch has them.",
            )
        if cluster == "group" and self.names is None:
            raise FrameError.build(
                key="cluster",
                expected="groups, to draw whole groups",
                found="neither `group_ids` nor a column `group_id`",
                advice='Pass cluster="sample".',
            )
        samples = self.rounds["sample"].to_numpy()
        names = samples if self.names is None or cluster == "sample" else self.names
        return number_values("group_id", names)[0]


def runs_from_batch(batch: Batch, *, by: str | None) -> Runs:
    """Return the rounds of a batch with their tokens."""
    rounds, diff = round_frame_and_diffs(batch)
    names = None if batch.group_ids is None else np.asarray(batch.group_ids)
    return Runs(
        rounds=rounds,
        tokens={"diff": diff, "prob_diff": prob_diffs(batch)},
        names=None if names is None else names[rounds["sample"]],
        split=split_rounds_by(batch, rounds, by),
    )


def runs_from_frame(tokens: pd.DataFrame, *, a: str, b: str, by: str | None) -> Runs:
    """Return the rounds of a token frame, which has one pair of scores."""
    require_frame(tokens)
    check_pair(tokens, a, b)
    rounds = rounds_of_tokens(tokens)
    num = rounds["num_tokens"].to_numpy()
    begins = np.cumsum(num) - num
    probs = read_prob_diffs(tokens)
    more = {} if probs is None else {"prob_diff": probs}
    return Runs(
        rounds=rounds,
        tokens={"diff": tokens["diff"].to_numpy(), **more},
        names=tokens["group_id"].to_numpy()[begins] if "group_id" in tokens else None,
        split=split_rounds_by(tokens, rounds, by),
    )


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
    Quantiles, `max` and `share_zero` are over tokens, whatever the weight.

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
        As trainers log them, whatever `weight` is: `train_rollout_logprob_abs_diff`
        (slime: |d| by sample), `mismatch_kl` (prime-rl: k3 by token) and
        `token_mult_prob_error` (NeMo-RL: :math:`e^{|d|}` by token). The columns of
        means, `mean_abs_diff` and `mean_diff`, are names of their metrics everywhere.
    weight : {"token", "sample"}
        What has equal weight in `mean`.
    ci : float
        How often the interval should cover, from 0 to 1.
    cluster : {"sample", "group"}, optional
        The unit that the bootstrap draws. By default groups if there are any (in a
        frame, a column `group_id`), else samples.
    last_aligned : bool
        Count rounds from the end of each sample: the last one is -1.
    a, b : str
        The scores to compare; a frame has those that it was built with.
    by : str, optional
        A column of samples or rounds, such as `group_id` or `reward`: one row per value
        and round, and the value comes first. At most 100 values.
    threshold : float
        Of `beyond`.

    Returns
    -------
    DataFrame
        One row per round, ordered. `mean` and what follows up to `max` are in the unit
        of the metric (`schema.METRICS` names it). `is_few` marks rounds of fewer than
        10 samples, or of fewer than 10 groups where groups are drawn: their interval
        says little. `prob_diff` is present for a batch, and
        for a frame with `prob_diff` or `rollout_log_prob`. For a pair other than the
        standard one, `attrs["pair"]` names both.

    Raises
    ------
    FrameError
        If a frame lacks a column or has another pair, or an option is invalid.
    BatchError
        If the batch has no such score.

    Notes
    -----
    The interval is a bootstrap of whole clusters (`stats.intervals.Resampling`). It is
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
    metric = schema.metric_name(metric)
    how = Estimator(measure=get_measure(metric, threshold), weight=weight, ci=ci)
    usual = ("abs_diff", "token", False, None)
    if isinstance(batch, Batch):
        batch = select_scores(batch, a, b)
        is_usual = (metric, weight, last_aligned, by) == usual
        known = stored_summary_rows(batch, cluster=cluster, ci=ci) if is_usual else None
        if known is not None:
            return _frame(known, [], tokens=("diff", "prob_diff"))
        runs = runs_from_batch(drop_worst_picks(batch), by=by)
    else:
        runs = runs_from_frame(batch, a=a, b=b, by=by)
    rows = _rows(runs, how, cluster=cluster, last_aligned=last_aligned)
    columns = [] if by is None else [by]
    return tag_pair(_frame(rows, columns, tokens=runs.tokens), batch)


def summary_from_totals(rounds: list[dict[str, Any]]) -> pd.DataFrame:
    """Return what `round_summary` gives, from totals in the footer of a step file."""
    return _frame(rows_from_totals(rounds, 0.95), [], tokens=("diff", "prob_diff"))


def _rows(
    runs: Runs, how: Estimator, *, cluster: str | None, last_aligned: bool
) -> dict[str, Any]:
    """Return the columns of the summary, with a row for each value and round."""
    require_column(runs.tokens, how.measure.source_column)
    index = runs.round_index(last=last_aligned)
    num_finite = (runs.rounds["num_tokens"] - runs.rounds["num_nonfinite"]).to_numpy()
    clusters, num_clusters = used_clusters(runs.clusters(cluster), num_finite)
    draws = Resampling(num_clusters)
    first = int(index.min(initial=0))
    num = int(index.max(initial=0)) - first + 1
    key = runs.codes * num + index - first
    order = np.argsort(key, kind="stable")
    columns = _sums_by_run(runs.rounds, clusters)
    columns = {name: values[order] for name, values in columns.items()}
    keys, part = np.unique(key[order], return_inverse=True)
    summary, totals = _summarise(columns, part, runs.tokens, how.measure)
    means = how.means(part, columns, totals, draws)
    return {
        **({} if runs.split is None else runs.split.column(keys // num)),
        "round": first + keys % num,
        **summary,
        **means,
    }


def used_clusters(clusters: Array, num_finite: Array) -> tuple[Array, int]:
    """Count the clusters with a finite token from 0; return how many there are too.

    The others, which add nothing to any mean, are numbered 0.
    """
    used = np.bincount(clusters, num_finite) > 0
    numbers = np.maximum(used.cumsum() - 1, 0)
    return numbers[clusters], int(used.sum())


def _frame(
    rows: Mapping[str, Any], first: list[str], *, tokens: Container[str]
) -> pd.DataFrame:
    """Build the summary, without the means that these columns of tokens do not give."""
    absent = [
        one.mean_column.name
        for one in _SUMMARY_MEASURES
        if one.source_column not in tokens
    ]
    names = [column.name for column in schema.SUMMARY.columns]
    known = {**dict.fromkeys([*first, *names], ()), **rows}  # without rounds: no rows
    counts = (np.asarray(known[name]) for name in ("num_nonfinite", "num_tokens"))
    known["share_nonfinite"] = means_of_sums(*counts)
    columns: dict[str, Any] = {name: [*known[name]] for name in first}
    for column in schema.SUMMARY.columns:
        if column.name not in absent:
            columns[column.name] = np.asarray(known[column.name], dtype=column.dtype)
    return pd.DataFrame(columns, copy=False)

"""`compare_outcomes`: which tasks were gained and lost between two sets of attempts."""

from __future__ import annotations

import math
import os
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import ndtri

from rounddiag.batch import Batch
from rounddiag.core.columns import to_numpy
from rounddiag.errors import BatchError
from rounddiag.stats.inputs import open_measured
from rounddiag.stats.intervals import MIN_CLUSTERS, UPPER_LEVEL, ratio_interval
from rounddiag.wording import format_names

# Sample columns that name the task of an attempt, in the order in which they are tried.
_TASK_NAMES = ("task", "task_id")
_ROUNDING = 1e-9  # relative, of a mean of float64
_CHANGES = {1: "gained", 0: "equal", -1: "lost"}


def compare_outcomes(
    a: Batch | str | os.PathLike[str], b: Batch | str | os.PathLike[str]
) -> pd.DataFrame:
    """Compare the scores of two sets of attempts, task by task.

    The task is a sample column `task` or `task_id`, else the group, else the sample id:
    the first of them that both sides have, with a task in common. Where a file has no
    groups and each prompt occurs once, the sample id comes before the group.

    Parameters
    ----------
    a, b : Batch or path-like
        The attempts before and after, with rewards. A path is read by `rounddiag.load`.

    Returns
    -------
    DataFrame
        One row per task, those of `a` first: `task`; `score_a` and `score_b`, the mean
        reward of its attempts, NaN where none is known; `num_attempts_a` and
        `num_attempts_b` with a known reward; `difference`, `score_b - score_a`; and
        `change`: `gained`, `lost`, `equal`; `not in both`, or `unknown` where a side
        has no reward of the task.

        `attrs`: `by`, what names the task; `num_unnamed`, attempts without a task,
        which are left out; `num_tasks` that both sides have; `mean_difference` over
        these, with `ci_low` and `ci_high`, its 95 % interval with tasks as clusters
        (NaN for fewer than 5 tasks, and where scores that are not from 0 to 1 all
        differ alike); and `mcnemar_p`, the exact two-sided p of McNemar's test where
        each of these tasks has one attempt a side with a reward of 0 or 1, else None.

    Raises
    ------
    BatchError
        If a side has no rewards, or no task is in both.

    References
    ----------
    A. Agresti and Y. Min, "Simple improved confidence intervals for comparing matched
    proportions", Statistics in Medicine 24, 2005: the interval of scores from 0 to 1.

    Q. McNemar, "Note on the sampling error of the difference between correlated
    proportions or percentages", Psychometrika 12, 1947.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> compared = rd.compare_outcomes(batch, batch)
    >>> compared["change"].unique().tolist(), compared.attrs["mean_difference"]
    (['equal'], 0.0)
    """
    before, after = (open_measured(side).require_batch() for side in (a, b))
    for side, batch in (("a", before), ("b", after)):
        if batch.rewards is None:
            raise BatchError.build(
                key=side,
                expected="a batch with rewards",
                found="none",
                advice="Name their column: `rd.load(path, columns={'rewards': ...})`.",
            )
    by, *names = _shared_tasks(before, after)
    sides = [*map(_scores, (before, after), names, ("_a", "_b"))]
    rows = sides[0].join(sides[1], how="outer")
    tasks = [*names[0], *names[1]]
    rows = rows.reindex([task for task in dict.fromkeys(tasks) if task is not None])
    counts = ["num_attempts_a", "num_attempts_b"]
    rows[counts] = rows[counts].fillna(0).astype(np.int64)
    is_equal = np.isclose(rows["score_a"], rows["score_b"], rtol=_ROUNDING, atol=0)
    rows["difference"] = (rows["score_b"] - rows["score_a"]).mask(is_equal, 0.0)
    why = np.where(rows.index.isin({*names[0]} & {*names[1]}), "unknown", "not in both")
    change = np.sign(rows["difference"]).map(_CHANGES)
    rows["change"] = change.where(change.notna(), why)
    rows = rows.rename_axis("task").reset_index()
    both = rows[rows["difference"].notna()]
    low, high = _interval(both)
    rows.attrs = {
        "by": by,
        "num_unnamed": tasks.count(None),
        "num_tasks": len(both),
        "mean_difference": float(both["difference"].mean()),
        "ci_low": low,
        "ci_high": high,
        "mcnemar_p": _mcnemar(both),
    }
    return rows


def _interval(both: pd.DataFrame) -> tuple[float, float]:
    """Return the interval of the mean difference, with tasks as clusters.

    Of scores from 0 to 1 it is that of Agresti and Min, with half a task more of each
    kind: gained, lost, and equal at 0 and at 1. Otherwise it would have no width where
    all tasks change alike, and would go beyond 1 where there are few.
    """
    difference, num = both["difference"].to_numpy(), len(both) + 2
    scores = both[["score_a", "score_b"]].to_numpy()
    is_bounded = bool(((scores >= 0) & (scores <= 1)).all())
    if len(both) < MIN_CLUSTERS or (not is_bounded and not np.ptp(difference)):
        return math.nan, math.nan
    if not is_bounded:
        low, high = ratio_interval(difference, np.ones(len(both)), is_signed=True)
        return float(low), float(high)
    mean = float(difference.sum()) / num
    error = math.sqrt(float(difference @ difference) + 1 - num * mean**2) / num
    reach = float(ndtri(UPPER_LEVEL)) * error
    return max(mean - reach, -1.0), min(mean + reach, 1.0)


_Tasks: TypeAlias = list[str | None]


def _shared_tasks(a: Batch, b: Batch) -> tuple[str, _Tasks, _Tasks]:
    """Return what names the tasks of both sides, and the task of each sample."""
    known = [_names_of_tasks(batch) for batch in (a, b)]
    for by in known[0]:
        if by in known[1] and ({*known[0][by]} & {*known[1][by]}) - {None}:
            return by, known[0][by], known[1][by]
    raise BatchError.build(
        key="task",
        expected="a task that both sides have, under the same name",
        found=" and ".join(map(_first_tasks, known)),
        advice="Add a sample column `task` to both: `rd.load(path,"
        ' columns={"task": ...})`.',
    )


def _first_tasks(known: dict[str, _Tasks]) -> str:
    names = (" ".join([name, *map(str, tasks[:1])]) for name, tasks in known.items())
    return format_names(names)


def _names_of_tasks(batch: Batch) -> dict[str, _Tasks]:
    columns = {name: batch.sample_columns.get(name) for name in _TASK_NAMES}
    ids = {"group_ids": batch.group_ids, "sample_ids": batch.sample_ids}
    # Groups that were made of equal prompts have no name that one could read.
    if "group_source" in batch.meta and len({*(batch.group_ids or ())}) == len(batch):
        ids = dict(reversed(ids.items()))
    names: dict[str, Any] = {**columns, **ids}
    return {k: [*map(_name, names[k])] for k in names if names[k] is not None}


def _name(task: Any) -> str | None:  # noqa: ANN401 a value of a column
    if pd.isna(task):
        return None
    # pandas makes floats of numbers beside an unknown one.
    is_whole = isinstance(task, float) and task.is_integer()
    return str(int(task) if is_whole else task)


def _scores(batch: Batch, tasks: _Tasks, suffix: str) -> pd.DataFrame:
    """Return the mean reward of the attempts at each task, and how many are known."""
    rewards: Any = batch.rewards
    of_tasks = pd.Series(to_numpy(rewards.double())).groupby(tasks)
    columns = {"score": of_tasks.mean(), "num_attempts": of_tasks.count()}
    return pd.DataFrame(columns).add_suffix(suffix)


def _mcnemar(both: pd.DataFrame) -> float | None:
    """Return the exact p of the tasks gained and lost, from a fair coin."""
    from scipy.stats import binomtest

    scores = both[["score_a", "score_b"]].to_numpy()
    is_single = (both[["num_attempts_a", "num_attempts_b"]] == 1).to_numpy().all()
    if not len(both) or not is_single or not np.isin(scores, (0, 1)).all():
        return None
    gained, lost = ((both["change"] == change).sum() for change in ("gained", "lost"))
    return float(binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0

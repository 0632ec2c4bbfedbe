"""`compare_outcomes`: which tasks were gained and lost between two sets of attempts."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pandas as pd

from rounddiag.batch import Batch
from rounddiag.core.columns import to_numpy
from rounddiag.errors import BatchError
from rounddiag.stats.inputs import open_measured
from rounddiag.stats.intervals import ratio_interval
from rounddiag.wording import format_names

# Sample columns that name the task of an attempt, in the order in which they are tried.
_TASK_NAMES = ("task", "task_id")
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
        `change`: `gained`, `lost`, `equal`, or `not in both`.

        `attrs`: `by`, what names the task; `num_tasks` that both sides have;
        `mean_difference` over these, with `ci_low` and `ci_high`, its 95 % interval
        with tasks as clusters (NaN for fewer than 5 tasks); and `mcnemar_p`, the exact
        two-sided p of McNemar's test where each of these tasks has one attempt a side
        with a reward of 0 or 1, else None.

    Raises
    ------
    BatchError
        If a side has no rewards, or no task is in both.

    References
    ----------
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
    by, *names = _shared_tasks(before, after)
    sides = [*map(_scores, (before, after), names, ("_a", "_b"))]
    rows = sides[0].join(sides[1], how="outer")
    rows = rows.reindex([*dict.fromkeys([*names[0], *names[1]])])
    counts = ["num_attempts_a", "num_attempts_b"]
    rows[counts] = rows[counts].fillna(0).astype(np.int64)
    rows["difference"] = rows["score_b"] - rows["score_a"]
    rows["change"] = np.sign(rows["difference"]).map(_CHANGES).fillna("not in both")
    rows = rows.rename_axis("task").reset_index()
    both = rows[rows["difference"].notna()]
    difference, ones = both["difference"], np.ones(len(both))
    low, high = ratio_interval(difference.to_numpy(), ones, is_signed=True)
    rows.attrs = {
        "by": by,
        "num_tasks": len(both),
        "mean_difference": float(difference.mean()),
        "ci_low": float(low),
        "ci_high": float(high),
        "mcnemar_p": _mcnemar(both),
    }
    return rows


def _shared_tasks(a: Batch, b: Batch) -> tuple[str, list[str], list[str]]:
    """Return what names the tasks of both sides, and the task of each sample."""
    known = [_names_of_tasks(batch) for batch in (a, b)]
    for by in known[0]:
        if by in known[1] and {*known[0][by]} & {*known[1][by]}:
            return by, known[0][by], known[1][by]
    raise BatchError.build(
        key="task",
        expected="a task that both sides have, under the same name",
        found=" and ".join(format_names(names) or "no name" for names in known),
        advice="Add a sample column `task` to both: `rd.load(path,"
        ' columns={"task": ...})`.',
    )


def _names_of_tasks(batch: Batch) -> dict[str, list[str]]:
    columns = {name: batch.sample_columns.get(name) for name in _TASK_NAMES}
    ids = {"group_ids": batch.group_ids, "sample_ids": batch.sample_ids}
    # Groups that were made of equal prompts have no name that one could read.
    if "group_source" in batch.meta and len({*(batch.group_ids or ())}) == len(batch):
        ids = dict(reversed(ids.items()))
    names: dict[str, Any] = {**columns, **ids}
    return {k: [*map(str, names[k])] for k in names if names[k] is not None}


def _scores(batch: Batch, tasks: list[str], suffix: str) -> pd.DataFrame:
    """Return the mean reward of the attempts at each task, and how many are known."""
    batch.require("rewards")
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

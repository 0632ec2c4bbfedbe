"""What the list of trajectories says of each: outcome, rewards of its group, task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.widgets.columns import BatchColumns
from rounddiag.widgets.episode import task_of, texts_of_end
from rounddiag.widgets.outcomes import outcome_of, says_error
from rounddiag.widgets.sample_view import BatchCache, last_action, prompt_turns

# Columns of what an environment's tasks are sorted by.
_DOMAINS = ("domain", "application", "app")
_Z = 1.959964  # of a 95 % interval
_BLOCKS = "▁▂▃▄▅▆▇█"  # of rising height


class TrajectoryTexts:
    """The outcomes and tasks of a batch's samples, each read once, on first use.

    Parameters
    ----------
    batch : Batch
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        read = BatchCache(batch)
        self._outcome = cache(partial(_outcome, batch, read))
        self._task = cache(partial(_task, batch, read))

    def columns(
        self, samples: Sequence[int], first: Sequence[int], *, has_status: bool
    ) -> list[tuple[str, str, list[str]]]:
        """Return the columns, head, kind and values, of some samples of a list.

        Those that its first samples have, so that all its rows have the same ones. The
        outcome stands where no column says the status.
        """
        columns = [
            *([] if has_status else [("outcome", "text", self.outcomes)]),
            ("of group", "text", self.group_rewards),
            ("task", "wide", self.tasks),
        ]
        return [
            (head, kind, read(samples))
            for head, kind, read in columns
            if any(read(first))
        ]

    def outcomes(self, samples: Sequence[int]) -> list[str]:
        """Return how each sample ended; "" where nothing says so."""
        return [*map(self._outcome, samples)]

    def errors(self, rows: pd.DataFrame) -> Array:
        """Count the errors of each sample, by rows of rounds as `action_rows` has them.

        One that the columns of the sample tell counts as well.
        """
        own = rows["sample"][rows["error"] != ""]
        return np.bincount(own, minlength=len(self._batch)) + self._says_error

    @cached_property
    def _says_error(self) -> Array:
        ends = [texts_of_end(self._batch, at) for at in range(len(self._batch))]
        failed = [any(says_error(*pair) for pair in end.items()) for end in ends]
        return np.array(failed, dtype=bool)

    def tasks(self, samples: Sequence[int]) -> list[str]:
        """Return the task of each sample; samples of one group have one."""
        groups = self._batch.group_ids
        if groups is not None:
            samples = [groups.index(groups[sample]) for sample in samples]
        return [*map(self._task, samples)]

    def group_rewards(self, samples: Sequence[int]) -> list[str]:
        """Draw the rewards of each sample's group, in the order of its samples."""
        return self._group_rewards[[*samples]].tolist()

    @cached_property
    def _group_rewards(self) -> Array:
        batch = self._batch
        if batch.rewards is None or batch.group_ids is None or not len(batch):
            return np.full(len(batch), "")
        bars = pd.Series(reward_bars(batch.rewards.double().cpu().numpy()))
        drawn = bars.groupby([*map(str, batch.group_ids)]).transform("".join)
        return drawn.where(drawn.str.len() > 1, "").to_numpy()


def domain_column(columns: BatchColumns) -> str | None:
    """Return the column of the samples' domain or application, if there is one."""
    return next((name for name in _DOMAINS if name in columns.sample_names), None)


def scores_by(rewards: Array, names: Sequence[object]) -> list[dict[str, Any]]:
    """Return the mean score of all samples and of each name, with intervals.

    Wilson's interval, which for scores between 0 and 1 is at least as wide as one of
    successes. Nothing where no score is known, or one is below 0 or above 1.

    Examples
    --------
    >>> first, *_ = scores_by(np.array([1.0, 0.0, 1.0]), ["a", "a", "b"])
    >>> first["name"], first["num"], round(first["low"], 3), round(first["high"], 3)
    ('all', 3, 0.208, 0.939)
    """
    table = pd.DataFrame({"name": [*map(str, names)], "score": rewards})
    known = table.dropna(subset="score")
    if known.empty or not known["score"].between(0, 1).all():
        return []
    parts = [("all", known), *known[known["name"] != ""].groupby("name")]
    return [
        {"name": name, **_wilson(own["score"].mean(), len(own)), "num": len(own)}
        for name, own in parts
    ]


def _wilson(mean: float, num: int) -> dict[str, float]:
    whole = 1 + _Z**2 / num
    middle = (mean + _Z**2 / (2 * num)) / whole
    half = _Z / whole * np.sqrt(mean * (1 - mean) / num + _Z**2 / (4 * num**2))
    return {
        "mean": float(mean),
        "low": float(max(middle - half, 0)),
        "high": float(min(middle + half, 1)),
    }


def _outcome(batch: Batch, read: BatchCache, sample: int) -> str:
    said, last = texts_of_end(batch, sample), last_action(batch, sample, read)
    return outcome_of(said.items(), last, success=read.successes[sample])


def _task(batch: Batch, read: BatchCache, sample: int) -> str:
    return task_of(batch[sample], prompt_turns(batch, sample, read))


def reward_bars(rewards: Array) -> Array:
    """Return a bar for each reward, from the lowest of a batch to the highest.

    Examples
    --------
    >>> "".join(reward_bars(np.array([0.0, 1.0, 0.5, np.nan])))
    '▁█▄·'
    """
    known = np.where(np.isfinite(rewards), rewards, 0.0)
    low, high = known.min(initial=0.0), known.max(initial=0.0)
    level = ((known - low) / (high - low or 1.0) * (len(_BLOCKS) - 1)).astype(int)
    return np.where(np.isfinite(rewards), np.array([*_BLOCKS])[level], "·")

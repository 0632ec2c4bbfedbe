"""What the list of trajectories says of each: outcome, rewards of its group, task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property, partial

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.widgets.episode import task_of, texts_of_end
from rounddiag.widgets.outcomes import outcome_of
from rounddiag.widgets.sample_view import BatchCache, last_action, prompt_turns

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
        if batch.rewards is None or batch.group_ids is None:
            return np.full(len(batch), "")
        bars = pd.Series(reward_bars(batch.rewards.double().cpu().numpy()))
        drawn = bars.groupby([*map(str, batch.group_ids)]).transform("".join)
        return drawn.where(drawn.str.len() > 1, "").to_numpy()


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
    low, high = np.nanmin(rewards, initial=0.0), np.nanmax(rewards, initial=0.0)
    share = (rewards - low) / (high - low or 1.0)
    level = np.nan_to_num(share * (len(_BLOCKS) - 1)).astype(int)
    return np.where(np.isnan(rewards), "·", np.array([*_BLOCKS])[level])

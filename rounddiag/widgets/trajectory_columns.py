"""What the list of trajectories says of each: outcome, rewards of its group, task."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.widgets.episode import task_of, texts_of_end
from rounddiag.widgets.outcomes import outcome_of, successes
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
        self._cache = BatchCache(batch)
        self._outcomes: dict[int, str] = {}
        self._tasks: dict[object, str] = {}

    @cached_property
    def _success(self) -> list[bool | None]:
        return successes(self._batch)

    def columns(
        self, samples: Sequence[int], first: Sequence[int], *, has_status: bool
    ) -> list[tuple[str, str, list[str]]]:
        """Return the columns, head, kind and values, of some samples of a list.

        Those that its first samples have, so that all its rows have the same ones. The
        outcome stands where no column says the status.
        """
        columns = [
            ("of group", "text", self.group_rewards),
            ("task", "wide", self.tasks),
        ]
        if not has_status:
            columns.insert(0, ("outcome", "text", self.outcomes))
        return [
            (head, kind, read(samples))
            for head, kind, read in columns
            if any(read(first))
        ]

    def outcomes(self, samples: Sequence[int]) -> list[str]:
        """Return how each sample ended; "" where nothing says so."""
        batch, known = self._batch, self._outcomes
        for sample in {*samples} - known.keys():
            said = texts_of_end(batch, sample)
            last = last_action(batch, sample, self._cache)
            success = self._success[sample]
            known[sample] = outcome_of(said.items(), last, success=success)
        return [known[sample] for sample in samples]

    def tasks(self, samples: Sequence[int]) -> list[str]:
        """Return the task of each sample; samples of one group have one."""
        batch, known = self._batch, self._tasks
        groups = batch.group_ids
        keys = [sample if groups is None else groups[sample] for sample in samples]
        for key, sample in zip(keys, samples, strict=True):
            if key not in known:
                turns = prompt_turns(batch, sample, self._cache)
                known[key] = task_of(batch[sample], turns)
        return [known[key] for key in keys]

    def group_rewards(self, samples: Sequence[int]) -> list[str]:
        """Draw the rewards of each sample's group, in the order of its samples."""
        batch = self._batch
        if batch.rewards is None or batch.group_ids is None:
            return [""] * len(samples)
        groups = np.array([str(group) for group in batch.group_ids])
        bars = reward_bars(batch.rewards.double().cpu().numpy())
        shown = groups[[*samples]].tolist()
        drawn = {group: "".join(bars[groups == group]) for group in {*shown}}
        return [drawn[group] if len(drawn[group]) > 1 else "" for group in shown]


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

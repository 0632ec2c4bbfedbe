"""What the list of trajectories says of each: outcome, rewards of its group, task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.widgets.episode import task_of, texts_of_end
from rounddiag.widgets.outcomes import outcome_of, successes
from rounddiag.widgets.sample_view import BatchCache, last_action, prompt_turns

_BLOCKS = "▁▂▃▄▅▆▇█"  # of rising height


def columns_of_trajectories(
    batch: Batch, samples: Sequence[int], *, has_status: bool
) -> list[tuple[str, str, list[Any]]]:
    """Return the columns, head, kind and values, of those that a batch has.

    The outcome stands where no column says the status. Samples of one group have one
    task, which is read once.
    """
    columns: list[tuple[str, str, list[Any]]] = []
    cache, known = BatchCache(batch), dict[object, str]()
    if not has_status:
        success = successes(batch)
        outcomes = [
            outcome_of(
                texts_of_end(batch, sample).items(),
                last_action(batch, sample, cache),
                success=success[sample],
            )
            for sample in samples
        ]
        columns.append(("outcome", "text", outcomes))
    if batch.rewards is not None and batch.group_ids is not None:
        columns.append(("of group", "text", _group_rewards(batch, samples)))
    tasks = []
    for sample in samples:
        key = sample if batch.group_ids is None else batch.group_ids[sample]
        if key not in known:
            known[key] = task_of(batch[sample], prompt_turns(batch, sample, cache))
        tasks.append(known[key])
    columns.append(("task", "wide", tasks))
    return [column for column in columns if any(column[2])]


def _group_rewards(batch: Batch, samples: Sequence[int]) -> list[str]:
    """Draw the rewards of each sample's group, in the order of its samples."""
    assert batch.rewards is not None  # noqa: S101 for the type checker
    assert batch.group_ids is not None  # noqa: S101
    rewards = batch.rewards.double().cpu().numpy()
    groups = np.array([str(group) for group in batch.group_ids])
    bars = reward_bars(rewards)
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
    bars: Array = np.where(np.isnan(rewards), "·", np.array([*_BLOCKS])[level])
    return bars

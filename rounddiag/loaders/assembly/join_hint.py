"""What a batch says of its rows if they are steps that were not joined."""

from __future__ import annotations

from rounddiag.batch import Batch
from rounddiag.batch.trajectories import with_unknown_rounds
from rounddiag.core.groups import trajectory_columns


def with_join_hint(batch: Batch) -> Batch:
    """Say in `meta["rows"]` that rows are steps and how to join them, if they are.

    Until then the rounds are unknown: each step counts its own from 0.
    """
    names = trajectory_columns(batch)
    if "rows" in batch.meta or not names:
        return batch
    by = repr(names[0]) if len(names) == 1 else repr([*names])
    hint = f"rows are steps of trajectories: load(..., sample_by={by}) joins them"
    return with_unknown_rounds(batch, hint)

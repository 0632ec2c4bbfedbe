"""What a batch says of its rows if they are steps that were not joined."""

from __future__ import annotations

from collections.abc import Sequence

from rounddiag.batch import Batch
from rounddiag.batch.trajectories import ARE_STEPS, with_unknown_rounds
from rounddiag.core.groups import trajectory_columns
from rounddiag.errors import LoadError


def with_join_hint(batch: Batch) -> Batch:
    """Say in `meta["rows"]` that rows are steps and how to join them, if they are.

    Until then the rounds are unknown: each step counts its own from 0.
    """
    names = trajectory_columns(batch)
    if "rows" in batch.meta or not names:
        return batch
    by = repr(names[0]) if len(names) == 1 else repr([*names])
    hint = f"{ARE_STEPS} of trajectories: load(..., sample_by={by}) joins them"
    return with_unknown_rounds(batch, hint)


def check_order(sample_by: str | Sequence[str] | None, order_by: str | None) -> None:
    """Raise a LoadError for `order_by` without `sample_by`."""
    if order_by is not None and not sample_by:
        raise LoadError.build(
            key="order_by",
            expected="it together with `sample_by`",
            found="it alone",
            advice="Pass the columns that identify a trajectory as `sample_by`.",
        )

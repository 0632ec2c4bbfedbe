"""What the samples of a batch go together with when an interval is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]


def clusters_of(batch: Batch) -> Array:
    """Return the cluster of each sample, counted from 0: its group, or itself alone."""
    names = np.asarray(batch.group_ids or range(batch.num_samples))
    found: Array = np.unique(names, return_inverse=True)[1]
    return found

"""What the samples of a batch go together with when an interval is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.batch import Batch
from rounddiag.stats.by import numbered

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, Any]


def clusters_of(data: Batch | pd.DataFrame) -> Array:
    """Return the cluster of each sample, counted from 0: its group, or itself alone.

    Parameters
    ----------
    data : Batch or DataFrame
        A batch, or a token frame, which can have `group_id`.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"sample": [0, 0, 1, 2], "group_id": ["y", "y", "x", "y"]})
    >>> clusters_of(frame)
    array([1, 0, 1])
    """
    if isinstance(data, Batch):
        names = np.asarray(data.group_ids or range(data.num_samples))
        return numbered("group_id", names)[0]
    if "group_id" not in data:
        return np.arange(data["sample"].to_numpy().max(initial=-1) + 1)
    known = data.drop_duplicates("sample")
    sample = known["sample"].to_numpy()
    found = np.zeros(sample.max(initial=-1) + 1, dtype=np.int64)
    found[sample] = numbered("group_id", known["group_id"].to_numpy())[0]
    return found

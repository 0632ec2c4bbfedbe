"""Which means hang on a few samples, and are marked where they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.stats.resampling import MIN_DRAWN

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Array = np.ndarray[Any, Any]

# The mean of a round that fewer samples, or groups, reach hangs on some of them.
FEW_SAMPLES = MIN_DRAWN


def few_rows(means: pd.DataFrame) -> Array:
    """Tell which rows are of few samples, or of few groups where groups are drawn.

    Parameters
    ----------
    means : DataFrame
        With `is_few`; without it, rows are judged by `num_samples`.

    Returns
    -------
    ndarray of bool, one per row

    Examples
    --------
    >>> import pandas as pd
    >>> few_rows(pd.DataFrame({"num_samples": [64, 9]}))
    array([False,  True])
    >>> few_rows(pd.DataFrame({"num_samples": [64, 9], "is_few": [True, True]}))
    array([ True,  True])
    """
    if "is_few" in means:
        return means["is_few"].to_numpy(dtype=bool)
    found: Array = means["num_samples"].to_numpy() < FEW_SAMPLES
    return found

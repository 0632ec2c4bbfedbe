"""Which round is the worst."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rounddiag import schema
from rounddiag.stats.few import few_rows

if TYPE_CHECKING:
    from typing import Any

    import pandas as pd


def worst_round(summary: pd.DataFrame) -> pd.Series[Any] | None:
    """Return the row of the round whose mean is the farthest from 0.

    Of equals the lowest round wins; rounds without a finite mean cannot. So that a
    round of one odd sample does not win by accident, rounds of fewer than 10 samples
    (or groups, where `is_few` says so) are compared only where no round has more.

    Parameters
    ----------
    summary : DataFrame
        As made by `round_summary`.

    Returns
    -------
    Series or None
        None where no round has a finite mean.

    Raises
    ------
    FrameError
        If the frame lacks a column.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame(
    ...     {
    ...         "round": [0, 1, 2, 3],
    ...         "num_samples": [64, 32, 16, 1],
    ...         "mean": [0.1, 0.3, 0.3, 0.9],
    ...     }
    ... )
    >>> int(worst_round(frame)["round"])
    1
    """
    schema.SUMMARY.require(summary.columns, "round", "num_samples", "mean")
    finite = summary[np.isfinite(summary["mean"])].sort_values("round")
    many = finite[~few_rows(finite)]
    compared = finite if many.empty else many
    if compared.empty:
        return None
    worst: pd.Series[Any] = compared.loc[compared["mean"].abs().idxmax()]
    return worst

"""A metric of every token, from columns that are there or are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.errors import FrameError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from rounddiag.core.measures import Measure

    Array = np.ndarray[Any, Any]


def measured(tokens: Mapping[str, Array] | pd.DataFrame, measure: Measure) -> Array:
    """Return what a metric is of every token; NaN where its diff is not finite.

    Parameters
    ----------
    tokens : mapping or DataFrame
        Columns, `diff` among them.
    measure : Measure

    Raises
    ------
    FrameError
        If the column that the metric takes is not there.

    Examples
    --------
    >>> from rounddiag.core.measures import measure_of
    >>> measured({"diff": np.array([-1.0, np.inf])}, measure_of("k2"))
    array([0.5, nan])
    """
    need_column(tokens, measure.column)
    diff, column = (np.asarray(tokens[name]) for name in ("diff", measure.column))
    finite = np.isfinite(diff)
    if finite.all():
        return measure.values(column)
    values = np.full(len(diff), np.nan)
    values[finite] = measure.values(column[finite])
    return values


def need_column(tokens: Mapping[str, Array] | pd.DataFrame, column: str) -> None:
    """Raise a FrameError unless the tokens have this column, which a metric takes."""
    if column not in tokens:
        raise FrameError.build(
            expected=f"a token frame with `{column}`",
            found="one without it and without `rollout_log_prob`",
            advice=f'Build it with `rounddiag.token_frame(batch, ["{column}"])`.',
        )

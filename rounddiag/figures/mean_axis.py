"""Axes of means: logarithmic, or linear around zero where means have a sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from rounddiag.checks.words import count
from rounddiag.core.measures import measure_of
from rounddiag.figures.log_axis import ROOM, LogAxis

if TYPE_CHECKING:
    import pandas as pd

# An interval is drawn up to this factor beyond the means, and cut there.
_REACH = 2.0


@dataclass(frozen=True, kw_only=True)
class LinearAxis:
    """A linear range that zero is in.

    Attributes
    ----------
    low, high : float
        Its ends.
    """

    low: float
    high: float

    @classmethod
    def around(cls, means: pd.DataFrame) -> LinearAxis:
        """Show means of any sign, zero, and their intervals.

        Examples
        --------
        >>> import pandas as pd
        >>> names = ["mean", "ci_low", "ci_high"]
        >>> LinearAxis.around(pd.DataFrame([[-0.5, -1.0, 0.0]], columns=names))
        LinearAxis(low=-1.06, high=0.06)
        """
        most = _REACH * float(means["mean"].abs().max())
        if not most > 0:
            return cls(low=-1.0, high=1.0)
        ends = means[["mean", "ci_low", "ci_high"]].fillna(0).clip(-most, most)
        low, high = min(float(ends.min().min()), 0), max(float(ends.max().max()), 0)
        room = ROOM * (high - low)
        return cls(low=low - room, high=high + room)

    def raised(self, values: pd.Series[float]) -> pd.Series[float]:
        """Return values as they are: 0 has a place."""
        return values

    def layout(self, num_ticks: int = 5) -> dict[str, Any]:
        """Return the range of a plotly axis, with a line at zero."""
        return {"range": [self.low, self.high], "zeroline": True, "nticks": num_ticks}


MeanAxis: TypeAlias = LogAxis | LinearAxis


def mean_axis(means: pd.DataFrame, metric: str) -> MeanAxis:
    """Return the axis for the means of a metric.

    Parameters
    ----------
    means : DataFrame
        With `mean`, `ci_low` and `ci_high`.
    metric : str
        As in `round_summary`.
    """
    kind = LinearAxis if measure_of(metric).is_signed else LogAxis
    return kind.around(means)


def raised_words(means: pd.DataFrame, axis: MeanAxis, edge: str) -> list[str]:
    """Say how many means of exactly 0 are drawn at an edge, in a line if any.

    Examples
    --------
    >>> import pandas as pd
    >>> raised_words(pd.DataFrame({"mean": [0.0]}), LogAxis(low=1e-4, high=1), "lower")
    ['1 mean exactly 0, drawn at the lower edge']
    """
    num = 0 if isinstance(axis, LinearAxis) else int((means["mean"] == 0).sum())
    return [f"{count(num, 'mean')} exactly 0, drawn at the {edge} edge"] if num else []

"""Axes of means: logarithmic with a place for zero, or linear around zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from rounddiag._typing import Array
from rounddiag.core.divergence import get_measure
from rounddiag.wording import pluralize

# An interval that reaches beyond the means by more than this factor is cut there: on a
# logarithmic axis, and on a linear one.
_MAX_REACH, _MAX_LINEAR_REACH = 10.0, 2.0
# Room at either end, as a share of the axis.
_ROOM = 0.06
# The shortest logarithmic axis covers this factor, which holds two ticks.
_MIN_FACTOR = 6.0
# Where 0 is drawn, as a share of the axis.
_ZERO = 0.03
# Labels of ticks must not touch in a figure of 400 pixels.
_MAX_DECADES = 5
# Smaller or larger ticks are written as powers of ten.
_PLAIN = (1e-3, 1e4)


@dataclass(frozen=True, kw_only=True)
class LogAxis:
    """A logarithmic range.

    Attributes
    ----------
    low, high: Ends, both positive.
    """

    low: float
    high: float

    @classmethod
    def around(cls, means: pd.DataFrame) -> LogAxis:
        """Fit the positive values of `mean`, and their intervals.

        Examples
        --------
        >>> import pandas as pd
        >>> names = ["mean", "ci_low", "ci_high"]
        >>> LogAxis.around(pd.DataFrame([[0.0, 0.0, 0.0]], columns=names))
        LogAxis(low=0.0001, high=1.0)
        """
        mean = means["mean"].to_numpy()
        mean = mean[mean > 0]
        if len(mean) == 0:
            return cls(low=1e-4, high=1.0)
        lowest = np.append(means["ci_low"], mean)
        low = lowest[lowest >= mean.min() / _MAX_REACH].min()
        highest = np.append(means["ci_high"], mean)
        high = highest[highest <= mean.max() * _MAX_REACH].max()
        room = max((high / low) ** _ROOM, (_MIN_FACTOR * low / high) ** 0.5)
        return cls(low=float(low / room), high=float(high * room))

    @classmethod
    def around_values(cls, values: Array) -> LogAxis:
        """Fit the positive ones of single values.

        Examples
        --------
        >>> LogAxis.around_values(np.array([1e-3, 1.0])).high
        1.5135612484362082
        """
        names = ("mean", "ci_low", "ci_high")
        return cls.around(pd.DataFrame(dict.fromkeys(names, values[values > 0])))

    @property
    def zero(self) -> float:
        """Where 0 is drawn: at the low end, with room for its mark."""
        return float(self.low * (self.high / self.low) ** _ZERO)

    def place(self, values: pd.Series[float]) -> pd.Series[float]:
        """Move zeros to where they are drawn; NaN stays."""
        return values.clip(lower=self.zero)

    def layout(self, max_decades: int = _MAX_DECADES) -> dict[str, Any]:
        """Return the range of a plotly axis, with at most `count` labelled decades."""
        ends = [float(np.log10(end)) for end in (self.low, self.high)]
        ticks = self._ticks(max_decades)
        labels = [tick_text(tick) for tick in ticks]
        return {"type": "log", "range": ends, "tickvals": ticks, "ticktext": labels}

    def _ticks(self, max_decades: int) -> list[float]:
        """Choose powers of ten, and values between them if there are few."""
        num_decades = np.log10(self.high / self.low)
        digits = {0: (1, 2, 5), 1: (1, 3)}.get(int(num_decades), (1,))
        step = int(np.ceil(num_decades / max_decades))
        first, last = np.floor(np.log10(self.low)), np.ceil(np.log10(self.high))
        ticks = [
            float(f"{digit}e{exponent}")
            for exponent in range(int(first), int(last) + 1)
            for digit in digits
            if exponent % step == 0
        ]
        return [tick for tick in ticks if self.low <= tick <= self.high]


def tick_text(value: float) -> str:
    """Write a digit times a power of ten."""
    if _PLAIN[0] <= value < _PLAIN[1]:
        return f"{value:g}"
    digit, exponent = f"{value:.0e}".split("e")
    power = f"10<sup>{int(exponent)}</sup>"
    return power if digit == "1" else f"{digit}·{power}"


@dataclass(frozen=True, kw_only=True)
class LinearAxis:
    """A linear range that includes zero.

    Attributes
    ----------
    low, high: Ends.
    """

    low: float
    high: float

    @classmethod
    def around(
        cls, means: pd.DataFrame, max_reach: float = _MAX_LINEAR_REACH
    ) -> LinearAxis:
        """Fit means of any sign, zero, and intervals up to a multiple of the largest.

        Examples
        --------
        >>> import pandas as pd
        >>> names = ["mean", "ci_low", "ci_high"]
        >>> LinearAxis.around(pd.DataFrame([[-0.5, -1.0, 0.0]], columns=names))
        LinearAxis(low=-1.06, high=0.06)
        """
        reach = max_reach * float(means["mean"].abs().max())
        if not reach > 0:
            return cls(low=-1.0, high=1.0)
        ends = means[["mean", "ci_low", "ci_high"]].fillna(0).clip(-reach, reach)
        low, high = min(float(ends.min().min()), 0), max(float(ends.max().max()), 0)
        room = _ROOM * (high - low)
        return cls(low=low - room, high=high + room)

    @property
    def zero(self) -> float:
        """Where 0 is drawn."""
        return 0.0

    def place(self, values: pd.Series[float]) -> pd.Series[float]:
        """Return values unchanged: a linear axis has a place for 0."""
        return values

    def layout(self, num_ticks: int = 5) -> dict[str, Any]:
        """Return the range of a plotly axis, with a line at zero."""
        return {"range": [self.low, self.high], "zeroline": True, "nticks": num_ticks}


MeanAxis: TypeAlias = LogAxis | LinearAxis


def choose_axis(means: pd.DataFrame, metric: str) -> MeanAxis:
    """Choose the axis for the means of a metric: linear if it has a sign."""
    kind = LinearAxis if get_measure(metric).is_signed else LogAxis
    return kind.around(means)


def note_zeros(means: pd.DataFrame, axis: MeanAxis, edge: str) -> list[str]:
    """State how many means of exactly 0 are drawn at an edge, if any.

    Examples
    --------
    >>> import pandas as pd
    >>> note_zeros(pd.DataFrame({"mean": [0.0]}), LogAxis(low=1e-4, high=1), "lower")
    ['1 mean exactly 0, drawn at the lower edge']
    """
    count = 0 if isinstance(axis, LinearAxis) else int((means["mean"] == 0).sum())
    size = pluralize(count, "mean")
    return [f"{size} exactly 0, drawn at the {edge} edge"] if count else []


def note_cut(means: pd.DataFrame, axis: MeanAxis) -> list[str]:
    """State how many intervals reach beyond the axis, if any.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = {"mean": [0.1, 0.1], "ci_low": [1e-5, 0.05], "ci_high": [0.2, 0.2]}
    >>> note_cut(pd.DataFrame(rows), LogAxis(low=1e-3, high=1))
    ['1 interval reaches beyond the axis']
    """
    is_cut = (means["ci_low"] < axis.low) | (means["ci_high"] > axis.high)
    count = int((is_cut & means["mean"].notna()).sum())
    verb = "reaches" if count == 1 else "reach"
    return [f"{pluralize(count, 'interval')} {verb} beyond the axis"] if count else []

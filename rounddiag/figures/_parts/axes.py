"""Axes of magnitudes that differ by orders: logarithmic, with a place for zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from rounddiag.core.measures import measure_of
from rounddiag.wording import pluralize

if TYPE_CHECKING:
    import pandas as pd


# An interval is drawn up to this factor beyond the means, and cut there.
_REACH_LOG_AXIS = 10.0
# Room at either end, as a share of the axis.
ROOM = 0.06
# The shortest axis reaches over this factor: two of its ticks are on it.
_LEAST_LOG_AXIS = 6.0
# Where 0 is drawn, as a share of the axis.
_ABOVE_LOW = 0.03
# Side by side labels must not touch in a figure of 400 pixels.
_MAX_DECADES = 5
# Powers of ten beyond these are written as such.
_PLAIN = (1e-3, 1e4)


@dataclass(frozen=True, kw_only=True)
class LogAxis:
    """A logarithmic range.

    Attributes
    ----------
    low, high : float
        Ends, both positive.
    """

    low: float
    high: float

    @classmethod
    def around(cls, means: pd.DataFrame) -> LogAxis:
        """Show the positive ones of `mean`, and their intervals.

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
        low = lowest[lowest >= mean.min() / _REACH_LOG_AXIS].min()
        highest = np.append(means["ci_high"], mean)
        high = highest[highest <= mean.max() * _REACH_LOG_AXIS].max()
        room = max((high / low) ** ROOM, (_LEAST_LOG_AXIS * low / high) ** 0.5)
        return cls(low=float(low / room), high=float(high * room))

    def raised(self, values: pd.Series[float]) -> pd.Series[float]:
        """Put what is 0 where its mark is seen whole, at the low end; NaN stays."""
        return values.clip(lower=self.low * (self.high / self.low) ** _ABOVE_LOW)

    def layout(self, max_decades: int = _MAX_DECADES) -> dict[str, Any]:
        """Return the range of a plotly axis, and ticks for up to so many decades."""
        ends = [float(np.log10(end)) for end in (self.low, self.high)]
        ticks = self._ticks(max_decades)
        labels = [tick_text(tick) for tick in ticks]
        return {"type": "log", "range": ends, "tickvals": ticks, "ticktext": labels}

    def _ticks(self, max_decades: int) -> list[float]:
        """Choose powers of ten; where there are few, also what is between them."""
        num_decades = np.log10(self.high / self.low)
        digits = {0: (1, 2, 5), 1: (1, 3)}.get(int(num_decades), (1,))
        step = int(np.ceil(num_decades / max_decades))
        first, last = np.floor(np.log10(self.low)), np.ceil(np.log10(self.high))
        found = [
            float(f"{digit}e{exponent}")
            for exponent in range(int(first), int(last) + 1)
            for digit in digits
            if exponent % step == 0
        ]
        return [tick for tick in found if self.low <= tick <= self.high]


def tick_text(value: float) -> str:
    """Write a digit times a power of ten.

    Examples
    --------
    >>> tick_text(0.002), tick_text(1e-05), tick_text(2e-05)
    ('0.002', '10<sup>-5</sup>', '2·10<sup>-5</sup>')
    """
    if _PLAIN[0] <= value < _PLAIN[1]:
        return f"{value:g}"
    digit, exponent = f"{value:.0e}".split("e")
    power = f"10<sup>{int(exponent)}</sup>"
    return power if digit == "1" else f"{digit}·{power}"


# An interval is drawn up to this factor beyond the means, and cut there.
_REACH_MEAN_AXIS = 2.0


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
        most = _REACH_MEAN_AXIS * float(means["mean"].abs().max())
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
    return (
        [f"{pluralize(num, 'mean')} exactly 0, drawn at the {edge} edge"] if num else []
    )


# What is smaller is drawn in a band of its own, as zeros are.
FLOOR = 1e-6
# The band's height, and room over the largest, as factors; the least height of all.
_BAND, _ROOM, _LEAST_ROUND_AXIS = 5.0, 1.5, 100.0
_MIDDLE = FLOOR / _BAND**0.5
_DRAWN = ("mean", "p50", "p90", "p99", "max")


@dataclass(frozen=True, kw_only=True)
class RoundAxis:
    """Where values are drawn.

    Attributes
    ----------
    log : LogAxis, optional
        None where the axis is linear.
    """

    log: LogAxis | None = None

    @classmethod
    def of_quantiles(cls, summary: pd.DataFrame) -> RoundAxis:
        """Show all quantiles; what is below the floor takes a band.

        Examples
        --------
        >>> import pandas as pd
        >>> row = dict.fromkeys(_DRAWN, 1.0)
        >>> RoundAxis.of_quantiles(pd.DataFrame([row | {"p50": 0.0}])).log
        LogAxis(low=2e-07, high=1.5)
        """
        drawn = summary[[*_DRAWN]].to_numpy(dtype=np.float64)
        drawn = np.maximum(drawn[np.isfinite(drawn)], 0)
        high = max(drawn.max(initial=0), FLOOR * _LEAST_ROUND_AXIS) * _ROOM
        low = drawn.min(initial=high)
        bottom = low / _ROOM if low > FLOOR else FLOOR / _BAND
        return cls(log=LogAxis(low=float(bottom), high=float(high)))

    @property
    def has_floor(self) -> bool:
        """Whether something is drawn in the band of the smallest values."""
        return self.log is not None and self.log.low < FLOOR

    @property
    def bottom(self) -> float:
        """Where marks of no value are put."""
        return self.log.low if self.log else 0.0

    def placed(self, values: pd.Series[float]) -> pd.Series[float]:
        """Put values below the floor into the middle of its band; NaN stays."""
        return values.mask(values < FLOOR, _MIDDLE) if self.has_floor else values

    def layout(self) -> dict[str, Any]:
        """Return the range and the ticks of a plotly axis."""
        if self.log is None:
            return {"rangemode": "tozero"}
        found = self.log.layout()
        if self.has_floor:
            names = dict(zip(found["tickvals"], found["ticktext"], strict=True))
            names.pop(FLOOR, None)  # it would touch the name of the band
            names[_MIDDLE] = f"≤ {tick_text(FLOOR)}"
            found |= {"tickvals": [*names], "ticktext": [*names.values()]}
        return found

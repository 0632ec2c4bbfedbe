"""Axes of magnitudes that differ by orders: logarithmic, with a place for zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, Any]

# An interval is drawn up to this factor beyond the means, and cut there.
_REACH = 10.0
# Room at either end, as a share of the axis.
ROOM = 0.06
# The shortest axis reaches over this factor: two of its ticks are on it.
_LEAST = 6.0
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
        low = lowest[lowest >= mean.min() / _REACH].min()
        highest = np.append(means["ci_high"], mean)
        high = highest[highest <= mean.max() * _REACH].max()
        room = max((high / low) ** ROOM, (_LEAST * low / high) ** 0.5)
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

"""The y axis of a figure per round: linear for means, logarithmic for quantiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.figures.log_axis import LogAxis, tick_text

if TYPE_CHECKING:
    import pandas as pd

    Array = np.ndarray[Any, Any]

# What is smaller is drawn in a band of its own, as zeros are.
FLOOR = 1e-6
# The band's height, and room over the largest, as factors; the least height of all.
_BAND, _ROOM, _LEAST = 5.0, 1.5, 100.0
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
        high = max(drawn.max(initial=0), FLOOR * _LEAST) * _ROOM
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

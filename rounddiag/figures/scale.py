"""Logarithmic scales of magnitude, with their ends printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from plotly.colors import sample_colorscale

from rounddiag.figures.labels import number

Array = np.ndarray[Any, Any]

_COLORS = "cividis"
_DECADES = 4
_STEPS = (1.0, 2.0, 5.0, 10.0)
# Linear pieces that stand for the logarithm: 64 are off by less than a colour step.
_PIECES = 64
# More ticks between the ends would touch in a figure of 400 pixels.
_MAX_TICKS = 3
# Ticks closer than this share of the scale to an end would touch its label.
_CLEAR_OF_ENDS = 0.2


@dataclass(frozen=True, kw_only=True)
class LogScale:
    """A range of magnitudes; what lies beyond looks like the nearer end.

    Attributes
    ----------
    low, high : float
        Ends, both positive.
    start : float
        Where in the colours the low end is, from 0 to 1: their dark end is hard to see
        on dark paper.
    """

    low: float
    high: float
    start: float = 0.0

    @classmethod
    def around(cls, values: Array) -> LogScale:
        """Choose ends of 1, 2 or 5 times a power of ten, at most four decades apart.

        Examples
        --------
        >>> LogScale.around(np.array([0.0, 0.003, 0.04, np.nan]))
        LogScale(low=0.002, high=0.05, start=0.0)
        """
        positive = values[np.isfinite(values) & (values > 0)]
        if len(positive) == 0:
            return cls(low=1e-3, high=1.0)
        high = _round(float(positive.max()), up=True)
        low = _round(max(float(positive.min()), high / 10**_DECADES), up=False)
        return cls(low=low, high=high) if low < high else cls(low=low / 10, high=high)

    def share(self, values: Array) -> Array:
        """Say how far up the scale each value is, from 0 to 1.

        Examples
        --------
        >>> LogScale(low=0.01, high=1.0).share(np.array([0.0, 0.1, 5.0]))
        array([0. , 0.5, 1. ])
        """
        kept = np.clip(values, self.low, self.high)
        shares: Array = np.log(kept / self.low) / np.log(self.high / self.low)
        return shares

    def linear_colors(self) -> list[list[Any]]:
        """Return a plotly colour scale that makes linear values look logarithmic."""
        shares = np.linspace(0, 1, _PIECES + 1)
        values = self.low * (self.high / self.low) ** shares
        places = (values - self.low) / (self.high - self.low)
        return [
            list(pair) for pair in zip(places.tolist(), self._colors(), strict=True)
        ]

    def bar(self, values: Array) -> dict[str, Any]:
        """Return a plotly marker whose colour bar prints this scale.

        Arrows at its ends say that some of the values lie beyond.
        """
        places = self._ticks()
        labels = [number(float(place)) for place in places]
        labels[0] = ("◂ " if (values < self.low).any() else "") + labels[0]
        labels[-1] += " ▸" if (values > self.high).any() else ""
        return {
            "color": [0.0],
            "cmin": float(np.log10(self.low)),
            "cmax": float(np.log10(self.high)),
            "colorscale": self._colors(),
            "showscale": True,
            "colorbar": {"tickvals": np.log10(places).tolist(), "ticktext": labels},
        }

    def _colors(self) -> list[str]:
        shares = np.linspace(self.start, 1, _PIECES + 1)
        colors: list[str] = sample_colorscale(_COLORS, shares.tolist())
        return colors

    def _ticks(self) -> Array:
        exponents = np.arange(np.ceil(np.log10(self.low)), np.log10(self.high) + 1e-9)
        decades = 10.0**exponents
        shares = self.share(decades)
        clear = (shares > _CLEAR_OF_ENDS) & (shares < 1 - _CLEAR_OF_ENDS)
        step = -(-np.count_nonzero(clear) // _MAX_TICKS) or 1
        return np.array([self.low, *decades[clear][::step], self.high])


def _round(value: float, *, up: bool) -> float:
    """Round to 1, 2 or 5 times a power of ten, unless it is (nearly) that."""
    base = float(10.0 ** np.floor(np.log10(value)))
    steps = [step for step in _STEPS if _reaches(step, value / base, up=up)]
    # Through text: 5 * 0.001 is not quite 0.005.
    return float(f"{base * (min(steps) if up else max(steps)):.0e}")


def _reaches(step: float, ratio: float, *, up: bool) -> bool:
    slack = 1e-6
    return step >= ratio * (1 - slack) if up else step <= ratio * (1 + slack)

"""Scales of signed values: blue above zero, orange below, neutral between."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from plotly.colors import sample_colorscale

from rounddiag.figures.labels import number
from rounddiag.figures.scale import LogScale

Array = np.ndarray[Any, Any]

# From orange to blue it darkens throughout, so that grey shows the sign too.
_COLORS = [[0, "#ffbe6f"], [0.5, "#a3a3a3"], [1, "#1a5299"]]
_PIECES = 64
# Over more, noise would look as strong as what stands out.
_DECADES = 2
# A tick closer than this share of either half to its ends would touch their labels.
_CLEAR = 0.4


@dataclass(frozen=True, kw_only=True)
class SignedScale:
    """A range of values around zero, logarithmic to either side.

    Attributes
    ----------
    size : LogScale
        Of magnitudes; what lies below its low end is neutral.
    """

    size: LogScale

    @classmethod
    def around(cls, values: Array) -> SignedScale:
        """Reach as far below zero as above.

        Examples
        --------
        >>> scale = SignedScale.around(np.array([-1e-5, 0.04, np.nan]))
        >>> scale.low, scale.high, scale.size.low
        (-0.05, 0.05, 0.0005)
        """
        size = LogScale.around(np.abs(values))
        return cls(size=replace(size, low=max(size.low, size.high / 10**_DECADES)))

    @property
    def low(self) -> float:
        """The lowest value."""
        return -self.size.high

    @property
    def high(self) -> float:
        """The highest value."""
        return self.size.high

    def share(self, values: Array) -> Array:
        """Say how far up the scale each value is, from 0 to 1.

        Examples
        --------
        >>> scale = SignedScale(size=LogScale(low=0.01, high=1.0))
        >>> scale.share(np.array([-1.0, -0.1, 0.001, 1.0]))
        array([0.  , 0.25, 0.5 , 1.  ])
        """
        shares: Array = (1 + np.sign(values) * self.size.share(np.abs(values))) / 2
        return shares

    def linear_colors(self) -> list[list[Any]]:
        """Return a plotly colour scale that makes linear values look logarithmic."""
        sizes = np.geomspace(self.size.low, self.high, _PIECES + 1)
        values = np.concatenate([-sizes[::-1], sizes])
        places = (values - self.low) / (self.high - self.low)
        colors = sample_colorscale(_COLORS, self.share(values).tolist())
        return [list(pair) for pair in zip(places.tolist(), colors, strict=True)]

    def bar(self, values: Array) -> dict[str, Any]:
        """Return a plotly marker whose colour bar prints this scale.

        The middle is marked with the size below which values are neutral, if there
        are such.
        """
        ticks = self._ticks()
        labels = [number(float(tick)) for tick in ticks]
        if (np.abs(values) < self.size.low).any():
            labels[len(labels) // 2] = f"±{number(self.size.low)}"
        return {
            "color": [0.5],
            "cmin": 0.0,
            "cmax": 1.0,
            "colorscale": _COLORS,
            "showscale": True,
            "colorbar": {"tickvals": self.share(ticks).tolist(), "ticktext": labels},
        }

    def _ticks(self) -> Array:
        """Choose the ends, zero, and a power of ten between if one is."""
        middle = float(10 ** np.round(np.log10(self.size.low * self.high) / 2))
        is_clear = _CLEAR < self.size.share(np.array(middle)) < 1 - _CLEAR
        sizes = [middle, self.high] if is_clear else [self.high]
        return np.array([*(-size for size in reversed(sizes)), 0, *sizes])


Scale: TypeAlias = LogScale | SignedScale


def scale_of(values: Array, *, is_signed: bool) -> Scale:
    """Choose the scale of some values: around zero where they have a sign.

    Examples
    --------
    >>> scale_of(np.array([0.003, 0.04]), is_signed=False)
    LogScale(low=0.002, high=0.05, start=0.0)
    """
    return (SignedScale if is_signed else LogScale).around(values)


def scale_between(low: float, high: float, *, is_signed: bool) -> Scale:
    """Make the scale of sizes from one to another, to either side if there are signs.

    Examples
    --------
    >>> scale_between(0.01, 1.0, is_signed=True).low
    -1.0
    """
    size = LogScale(low=low, high=high)
    return SignedScale(size=size) if is_signed else size

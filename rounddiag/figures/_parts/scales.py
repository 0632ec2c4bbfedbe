"""Logarithmic scales of magnitude, with their ends printed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from rounddiag._typing import Array
from rounddiag.figures._parts.canvas import Theme, plot_height, with_opacity
from rounddiag.figures._parts.labels import format_number

_COLORS = "cividis"
_DECADES = 4  # that a scale has at most
_STEPS = (1.0, 2.0, 5.0, 10.0)  # ends of a scale, in powers of ten
# Linear pieces that approximate the logarithm: with 64 the error is less than a colour
# step.
_PIECES = 64
# More ticks between the ends would touch in a figure of 400 pixels.
_MAX_TICKS = 3
# Ticks closer than this share of the scale to an end would touch its label.
_CLEAR_OF_ENDS = 0.2


@dataclass(frozen=True, kw_only=True)
class LogScale:
    """A range of magnitudes; values beyond it are drawn as the nearer end.

    Attributes
    ----------
    low, high: Ends, both positive.
    start: Where in the colours the low end is, from 0 to 1: their dark end is hard to
        see on dark paper.
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
        """Return how far up the scale each value is, from 0 to 1.

        Examples
        --------
        >>> LogScale(low=0.01, high=1.0).share(np.array([0.0, 0.1, 5.0]))
        array([0. , 0.5, 1. ])
        """
        clipped = np.clip(values, self.low, self.high)
        return np.log(clipped / self.low) / np.log(self.high / self.low)

    def linear_colors(self, theme: Theme) -> list[list[Any]]:  # noqa: ARG002 as the signed one
        """Return a plotly colour scale that makes linear values look logarithmic."""
        shares = np.linspace(0, 1, _PIECES + 1)
        values = self.low * (self.high / self.low) ** shares
        places = (values - self.low) / (self.high - self.low)
        return [
            list(pair) for pair in zip(places.tolist(), self._colors(), strict=True)
        ]

    def bar(self, values: Array, theme: Theme) -> dict[str, Any]:  # noqa: ARG002 as the signed one
        """Return a plotly marker whose colour bar prints this scale.

        Its ends say where values lie beyond.
        """
        places = self._ticks()
        labels = [format_number(float(place)) for place in places]
        labels[0] = ("≤ " if (values < self.low).any() else "") + labels[0]
        labels[-1] = ("≥ " if (values > self.high).any() else "") + labels[-1]
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
        return sample_colorscale(_COLORS, shares.tolist())

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


# Over more decades, noise would look as strong as outliers.
_SIGNED_DECADES = 2
# A tick closer than this share of either half to its ends would touch their labels.
_CLEAR = 0.4


@dataclass(frozen=True, kw_only=True)
class SignedScale:
    """A range of values around zero, logarithmic to either side.

    Attributes
    ----------
    size: Of magnitudes; what lies below its low end is neutral.
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
        return cls(
            size=replace(size, low=max(size.low, size.high / 10**_SIGNED_DECADES))
        )

    @property
    def low(self) -> float:
        """The lowest value."""
        return -self.size.high

    @property
    def high(self) -> float:
        """The highest value."""
        return self.size.high

    def share(self, values: Array) -> Array:
        """Return how far up the scale each value is, from 0 to 1.

        Examples
        --------
        >>> scale = SignedScale(size=LogScale(low=0.01, high=1.0))
        >>> scale.share(np.array([-1.0, -0.1, 0.001, 1.0]))
        array([0.  , 0.25, 0.5 , 1.  ])
        """
        return (1 + np.sign(values) * self.size.share(np.abs(values))) / 2

    def linear_colors(self, theme: Theme) -> list[list[Any]]:
        """Return a plotly colour scale that makes linear values look logarithmic.

        Zero is the paper, seen through.
        """
        sizes = np.geomspace(self.size.low, self.high, _PIECES + 1)
        values = np.concatenate([-sizes[::-1], sizes])
        places = (values - self.low) / (self.high - self.low)
        colors = [self._color(theme, share) for share in self.share(values).tolist()]
        return [list(pair) for pair in zip(places.tolist(), colors, strict=True)]

    def bar(self, values: Array, theme: Theme) -> dict[str, Any]:
        """Return a plotly marker whose colour bar prints this scale.

        The middle is marked with the size below which values are neutral, if there
        are such.
        """
        ticks = self._ticks()
        labels = [format_number(float(tick)) for tick in ticks]
        if (np.abs(values) < self.size.low).any():
            labels[len(labels) // 2] = f"±{format_number(self.size.low)}"
        return {
            "color": [0.5],
            "cmin": 0.0,
            "cmax": 1.0,
            "colorscale": [[at, self._color(theme, at)] for at in (0.0, 0.5, 1.0)],
            "showscale": True,
            "colorbar": {"tickvals": self.share(ticks).tolist(), "ticktext": labels},
        }

    def _color(self, theme: Theme, share: float) -> str:
        """Return the colour at a share of the scale: clear in the middle."""
        color = theme.less if share < 0.5 else theme.more  # noqa: PLR2004 the middle
        return with_opacity(color, round(abs(2 * share - 1), 4))

    def _ticks(self) -> Array:
        """Choose the ends, zero, and a power of ten between if one is."""
        middle = float(10 ** np.round(np.log10(self.size.low * self.high) / 2))
        is_clear = _CLEAR < self.size.share(np.array(middle)) < 1 - _CLEAR
        sizes = [middle, self.high] if is_clear else [self.high]
        return np.array([*(-size for size in reversed(sizes)), 0, *sizes])


ColorScale: TypeAlias = LogScale | SignedScale


def choose_scale(values: Array, *, is_signed: bool) -> ColorScale:
    """Choose the scale of some values: around zero where they have a sign.

    Examples
    --------
    >>> choose_scale(np.array([0.003, 0.04]), is_signed=False)
    LogScale(low=0.002, high=0.05, start=0.0)
    """
    return (SignedScale if is_signed else LogScale).around(values)


_ROBUST = 2, 98  # percentiles beyond which sizes count as extremes


def without_extremes(values: Array) -> Array:
    """Clip sizes to their 2nd and 98th percentile, the range of seaborn's `robust`.

    Examples
    --------
    >>> without_extremes(np.array([*range(1, 102), np.nan]))[[0, 1, 49, -2]]
    array([ 3.,  3., 50., 99.])
    """
    sizes = np.abs(values)
    known = sizes[np.isfinite(sizes) & (sizes > 0)]
    if not len(known):
        return values
    return np.sign(values) * np.clip(sizes, *np.percentile(known, _ROBUST))


def make_scale(low: float, high: float, *, is_signed: bool) -> ColorScale:
    """Make the scale of sizes from one to another, to either side if there are signs.

    Examples
    --------
    >>> make_scale(0.01, 1.0, is_signed=True).low
    -1.0
    """
    size = LogScale(low=low, high=high)
    return SignedScale(size=size) if is_signed else size


# Room under the plot for the axis title and the colour bar, in pixels.
BOTTOM = 132
# The colour bar's title begins this far under the plot.
_BELOW = 58


def add_color_bar(
    figure: go.Figure, scale: ColorScale, values: Array, title: str, theme: Theme
) -> None:
    """Print the scale under a figure of final height, with the lower margin `BOTTOM`.

    Its ends say where some of the values lie beyond the scale.
    """
    marker = scale.bar(values, theme)
    marker["colorbar"] |= {
        "orientation": "h",
        "title": {"text": title, "side": "top", "font": {"size": 12}},
        "thickness": 12,
        "len": 1,
        "x": 0.5,
        "y": -_BELOW / plot_height(figure),
        "yanchor": "top",
        "ypad": 0,
        "tickangle": 0,
        "outlinewidth": 0,
    }
    figure.add_scatter(x=[None], y=[None], mode="markers", marker=marker)

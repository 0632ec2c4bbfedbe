"""What a heatmap can be asked for."""

from __future__ import annotations

from math import inf

from rounddiag.errors import FrameError, nearest
from rounddiag.schema import DIFFERENCE, MEAN_COLUMNS
from rounddiag.stats.combining import AGGREGATES

_METRICS = (*AGGREGATES, "prob_diff", "beyond", DIFFERENCE.name, *MEAN_COLUMNS)
_POOLINGS = ("max", "mean")


def check_options(
    metric: str, pooling: str, color_range: tuple[float, float] | None
) -> None:
    """Raise a FrameError for what a heatmap cannot show."""
    _check("metric", metric, _METRICS)
    _check("pooling", pooling, _POOLINGS)
    _check_range(color_range)


def _check(key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise FrameError.build(
            key=key,
            expected=f"one of {list(known)}",
            found=repr(value),
            advice=nearest(value, known, "Leave it out for the default."),
        )


def _check_range(color_range: tuple[float, float] | None) -> None:
    match color_range:
        case None:
            return
        case (int() | float() as low, int() | float() as high) if 0 < low < high < inf:
            return
    raise FrameError.build(
        key="color_range",
        expected="two sizes above 0, the smaller one first",
        found=repr(color_range),
        advice="Leave it out for one that fits.",
    )

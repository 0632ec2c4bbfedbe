"""What a call was given, whatever it calls its arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.vision.actions.values import as_point, is_number

if TYPE_CHECKING:
    from rounddiag.vision.actions.action import Point
    from rounddiag.vision.actions.calls import Call

# Names of points; the start of a drag before its end.
POINTS = (
    *("start_box", "start_point", "start_coordinate", "point", "coordinate"),
    *("end_box", "end_point", "end_coordinate", "coordinate2"),
)


def given(call: Call, *names: str, at: int | None = None) -> Any:  # noqa: ANN401 what a text says
    """Return the first argument of these names, or that at a place; None without."""
    for name in names:
        if name in call.kwargs:
            return call.kwargs[name]
    return None if at is None or len(call.args) <= at else call.args[at]


def points_of(call: Call, numbers: list[float] | None = None) -> list[Point]:
    """Return the points of a call, the start of a drag before its end."""
    named = [call.kwargs[name] for name in POINTS if name in call.kwargs]
    if {"x", "y"} <= call.kwargs.keys():
        named = [[call.kwargs["x"], call.kwargs["y"]]]
    numbers = numbers_of(call) if numbers is None else numbers
    pairs = [list(pair) for pair in zip(numbers[::2], numbers[1::2], strict=False)]
    lists = [value for value in call.args if isinstance(value, (list, str))]
    points = [as_point(value) for value in named or pairs or lists]
    return [point for point in points if point is not None]


def numbers_of(call: Call) -> list[float]:
    """Return the numbers among the arguments without a name."""
    return [value for value in call.args if is_number(value)]

"""Points, keys and texts, in the ways that models write them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeGuard, cast, get_args

from rounddiag.vision.actions.action import Coordinates, Direction

if TYPE_CHECKING:
    from rounddiag.vision.actions.action import Point

_MAX_POINT = 200  # characters: `<|box_start|>(1234,1234)<|box_end|>` has 35
_MAX_NUMBER = 1e9
_NUMBER = re.compile(r"[+-]?\d{1,9}(?:\.\d{1,15})?")


def as_point(value: object) -> Point | None:
    """Read `[x, y]`, a box of four numbers (its middle), or text with such numbers.

    Examples
    --------
    >>> as_point("<point>10 20</point>"), as_point([0, 0, 4, 2]), as_point("here")
    ((10, 20), (2.0, 1.0), None)
    """
    if isinstance(value, str):
        found = _NUMBER.findall(value[:_MAX_POINT])
        value = [float(number) if "." in number else int(number) for number in found]
    if not isinstance(value, list) or not all(map(is_number, value)):
        return None
    match value:
        case [x, y]:
            return x, y
        case [left, top, right, bottom]:
            return (left + right) / 2, (top + bottom) / 2
    return None


def is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that a screen may need; True, False and NaN are none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < _MAX_NUMBER


def counted_in(points: list[Point], otherwise: Coordinates) -> Coordinates:
    """Tell shares of the screen, 0.5 say, from what else a grammar counts in."""
    numbers = [number for point in points for number in point]
    is_written_so = any(isinstance(number, float) for number in numbers)
    is_unit = is_written_so and all(0 <= number <= 1 for number in numbers)
    return "unit" if is_unit else otherwise


def as_text(value: object) -> str | None:
    """Return text; None for anything else."""
    return value if isinstance(value, str) else None


def as_direction(value: object) -> Direction | None:
    """Return a direction; None for anything else."""
    name = value.strip().lower() if isinstance(value, str) else None
    return cast("Direction", name) if name in get_args(Direction) else None


def as_keys(value: object) -> tuple[str, ...]:
    """Read keys that are pressed together: a list, `ctrl c` or `ctrl+c`.

    Examples
    --------
    >>> as_keys("ctrl c"), as_keys(["ctrl", "v"]), as_keys("ctrl+a"), as_keys("+")
    (('ctrl', 'c'), ('ctrl', 'v'), ('ctrl', 'a'), ('+',))
    """
    if isinstance(value, list):
        return tuple(key for key in value if isinstance(key, str))
    if not isinstance(value, str):
        return ()
    return tuple(value.replace("+", " ").split() or filter(None, [value.strip()]))

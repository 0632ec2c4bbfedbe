"""One action of an agent, its point on the screen, and calls read as actions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeGuard, cast, get_args

from rounddiag.action_grammar import Call

_Fields = dict[str, Any]


ActionKind: TypeAlias = Literal[
    "click",
    "double_click",
    "drag",
    "move",
    "type",
    "scroll",
    "key",
    "open",
    "wait",
    "finished",
    "unknown",
]
Coordinates: TypeAlias = Literal["original", "resized", "unit", "thousand"]
Direction: TypeAlias = Literal["up", "down", "left", "right"]
Point: TypeAlias = tuple[float, float]
Size: TypeAlias = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Action:
    """One action, as the model wrote it.

    Attributes
    ----------
    kind: `click`, `double_click`, `drag`, `move`, `type`, `scroll`, `key`, `open` (an
        app), `wait`, `finished`, or `unknown`: text in which no action was found.
    point, end_point: x from the left and y from the top, in the unit `coordinates`. A
        drag has both, unless it starts at the mouse pointer.
    coordinates: The unit of the points: `original` (pixels of the screen), `resized`
        (pixels of the picture that the model saw), `unit` (0 to 1) or `thousand` (0 to
        1000).
    text: What was typed, answered, or which app was opened.
    direction: Of a scroll: `up`, `down`, `left` or `right`.
    amount: Distance of a scroll in the unit of the grammar, or seconds to wait.
    keys: Keys that were pressed together.
    variant: A variant of the kind: `right`, `middle`, `triple`, `long`, or the status
        with which a task ended.
    source_text: The text of the action; the whole text if no action was found.

    Examples
    --------
    >>> action = Action(kind="click", point=(500.0, 250.0), coordinates="thousand")
    >>> action.on((1920, 1080))
    (960.0, 270.0)
    """

    kind: ActionKind
    point: Point | None = None
    end_point: Point | None = None
    coordinates: Coordinates | None = None
    text: str | None = None
    direction: Direction | None = None
    amount: float | None = None
    keys: tuple[str, ...] = ()
    variant: str | None = None
    source_text: str = ""

    def on(
        self, size: Size, *, original: Size | None = None, resized: Size | None = None
    ) -> Point | None:
        """Return `point` in pixels of a picture.

        Parameters
        ----------
        size : tuple of int
            Width and height of the picture that it is drawn on.
        original, resized : tuple of int, optional
            Size of the screen and of the picture that the model saw, for pixel
            coordinates; `size` by default.

        Returns
        -------
        tuple of float, or None
            None where the action has no point.
        """
        return self._on(self.point, size, original or size, resized or size)

    def end_on(
        self, size: Size, *, original: Size | None = None, resized: Size | None = None
    ) -> Point | None:
        """Return `end_point` in pixels of a picture, as `on` does for `point`."""
        return self._on(self.end_point, size, original or size, resized or size)

    def _on(
        self, point: Point | None, size: Size, original: Size, resized: Size
    ) -> Point | None:
        if point is None:
            return None
        full = {
            "original": original,
            "resized": resized,
            "unit": (1, 1),
            "thousand": (1000, 1000),
            None: size,
        }[self.coordinates]
        return point[0] * size[0] / full[0], point[1] * size[1] / full[1]


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
        numbers = _NUMBER.findall(value[:_MAX_POINT])
        value = [float(number) if "." in number else int(number) for number in numbers]
    if not isinstance(value, list) or not all(map(is_number, value)):
        return None
    match value:
        case [x, y]:
            return x, y
        case [left, top, right, bottom]:
            return (left + right) / 2, (top + bottom) / 2
    return None


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a plausible number: not a bool, NaN or huge value."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < _MAX_NUMBER


def infer_coordinates(points: list[Point], otherwise: Coordinates) -> Coordinates:
    """Return `unit` for fractions of the screen such as 0.5, else the grammar's own."""
    numbers = [number for point in points for number in point]
    has_decimals = any(isinstance(number, float) for number in numbers)
    is_unit = has_decimals and all(0 <= number <= 1 for number in numbers)
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


# Names of arguments that are points; the start of a drag comes before its end.
POINTS = (
    *("start_box", "start_point", "start_coordinate", "point", "coordinate"),
    *("end_box", "end_point", "end_coordinate", "coordinate2"),
)


def argument(call: Call, *names: str, at: int | None = None) -> Any:  # noqa: ANN401 parsed from text
    """Return the first argument with one of these names, or the one at index `at`."""
    for name in names:
        if name in call.kwargs:
            return call.kwargs[name]
    return None if at is None or len(call.args) <= at else call.args[at]


def read_points(call: Call, numbers: list[float] | None = None) -> list[Point]:
    """Return the points of a call, the start of a drag before its end."""
    named = [call.kwargs[name] for name in POINTS if name in call.kwargs]
    if {"x", "y"} <= call.kwargs.keys():
        named = [[call.kwargs["x"], call.kwargs["y"]]]
    numbers = read_numbers(call) if numbers is None else numbers
    pairs = [list(pair) for pair in zip(numbers[::2], numbers[1::2], strict=False)]
    lists = [value for value in call.args if isinstance(value, (list, str))]
    points = [as_point(value) for value in named or pairs or lists]
    return [point for point in points if point is not None]


def read_numbers(call: Call) -> list[float]:
    """Return the numbers among the arguments without a name."""
    return [value for value in call.args if is_number(value)]


# Name of a call -> kind and variant. Names of pyautogui are written with underscores.
NAMES: dict[str, tuple[ActionKind, str | None]] = {
    **dict.fromkeys(("click", "left_click", "left_single"), ("click", None)),
    **dict.fromkeys(("right_click", "right_single"), ("click", "right")),
    "middle_click": ("click", "middle"),
    "triple_click": ("click", "triple"),
    "long_press": ("click", "long"),
    **dict.fromkeys(("double_click", "left_double"), ("double_click", None)),
    **dict.fromkeys(("hover", "mouse_move", "move_to"), ("move", None)),
    **dict.fromkeys(
        ("drag", "drag_to", "left_click_drag", "swipe", "select"), ("drag", None)
    ),
    **dict.fromkeys(("type", "write", "typewrite"), ("type", None)),
    **dict.fromkeys(("scroll", "vscroll", "hscroll"), ("scroll", None)),
    **dict.fromkeys(("key", "press", "hotkey", "system_button"), ("key", None)),
    **dict.fromkeys(("press_home", "press_back", "press_enter"), ("key", None)),
    **dict.fromkeys(("key_down", "keydown"), ("key", "down")),
    **dict.fromkeys(("key_up", "keyup"), ("key", "up")),
    **dict.fromkeys(("open", "open_app"), ("open", None)),
    **dict.fromkeys(("wait", "sleep"), ("wait", None)),
    **dict.fromkeys(("finished", "terminate"), ("finished", None)),
    "answer": ("finished", "answer"),
    "call_user": ("finished", "call_user"),
}


def read_call(call: Call, otherwise: Coordinates) -> Action | None:
    """Return the action of a call; None if the call is not an action."""
    if call.name not in NAMES:
        return None
    kind, variant = NAMES[call.name]
    fields = _READERS[kind](call)
    if fields is None:
        return None
    points = [p for p in (fields.get("point"), fields.get("end_point")) if p]
    return Action(
        **{
            "kind": kind,
            "variant": variant,
            "coordinates": infer_coordinates(points, otherwise) if points else None,
            "source_text": call.source_text,
            **fields,
        }
    )


def _click(call: Call) -> _Fields | None:
    points = read_points(call)
    # Without arguments it is at the mouse pointer; with other arguments it is not a
    # click.
    if not points and (call.args or call.kwargs):
        return None
    fields = _first(points)
    if call.kwargs.get("clicks") == 2:  # noqa: PLR2004 pyautogui's double click
        fields["kind"] = "double_click"
    if argument(call, "button") in ("right", "middle"):
        fields["variant"] = argument(call, "button")
    return fields


def _drag(call: Call) -> _Fields | None:
    points = read_points(call)
    direction = as_direction(argument(call, "direction"))
    if len(points) > 1:
        return {"point": points[0], "end_point": points[1]}
    if direction:  # a swipe of mobile agents
        return {"kind": "scroll", "direction": direction, **_first(points)}
    return {"end_point": points[0]} if points else None


def _type(call: Call) -> _Fields | None:
    text = as_text(argument(call, "content", "text", "message", "app_name", at=0))
    return None if text is None else {"text": text}


def _scroll(call: Call) -> _Fields | None:
    numbers = read_numbers(call)
    distance = argument(call, "pixels", "clicks", "amount")
    if distance is None and len(numbers) % 2:  # pyautogui: distance, then position
        distance, numbers = numbers[0], numbers[1:]
    fields = _first(read_points(call, numbers))
    words = map(as_direction, [argument(call, "direction"), *call.args])
    direction = next(filter(None, words), None)
    if direction is None and is_number(distance):
        forth, back = ("right", "left") if call.name == "hscroll" else ("up", "down")
        direction = back if distance < 0 else forth
    if is_number(distance):
        fields["amount"] = abs(distance)
    return {**fields, "direction": direction} if direction else None


def _key(call: Call) -> _Fields | None:
    value = argument(call, "key", "keys", "button", "text")
    if value is None and call.args:
        value = call.args if len(call.args) > 1 else call.args[0]
    if value is None and call.name.startswith("press_"):
        value = call.name.removeprefix("press_")
    keys = as_keys(value)
    return {"keys": keys} if keys else None


def _wait(call: Call) -> _Fields | None:
    seconds = argument(call, "time", "seconds", at=0)
    return {"amount": seconds} if is_number(seconds) else {}


def _finished(call: Call) -> _Fields | None:
    fields: _Fields = {"text": as_text(argument(call, "content", "text", at=0))}
    status = as_text(argument(call, "status"))
    return {**fields, "variant": status} if status else fields


_READERS: dict[ActionKind, Callable[[Call], _Fields | None]] = {
    **dict.fromkeys(("click", "double_click", "move"), _click),
    "drag": _drag,
    **dict.fromkeys(("type", "open"), _type),
    "scroll": _scroll,
    "key": _key,
    "wait": _wait,
    "finished": _finished,
}


def _first(points: list[Point]) -> _Fields:
    return {"point": points[0]} if points else {}

"""From a call to the action that it names, in any of the grammars."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, cast, get_args

from rounddiag.vision.actions.action import Action, Coordinates, Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rounddiag.vision.actions.action import Kind, Point

    Fields = dict[str, Any]


Value: TypeAlias = "str | int | float | list[Value]"

_MAX_DEPTH, _MAX_VALUES = 3, 64
_START = re.compile(r"(?<![\w.])([^\W\d]\w{0,31}(?:\.\w{1,32})?)[ \t]{0,4}\(")
_SPACE = re.compile(r"\s*")
_KEYWORD = re.compile(r"([^\W\d]\w{0,31})\s*=\s*")
_WORD = re.compile(r"[^\W\d]\w{0,63}(?![\w.(])")
_NUMBER_CALLS = re.compile(r"[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15})(?![\w.])")
# An apostrophe inside a word ends no string, though it should have been escaped.
_STRINGS = {
    quote: re.compile(
        rf"{quote}((?:[^{quote}\\]|\\.|(?<=\w){quote}(?=\w)){{0,20000}}){quote}",
        re.DOTALL,
    )
    for quote in "'\""
}
_ESCAPE = re.compile(r"\\([nrt'\"\\])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True)
class Call:
    """One call: its name, what it was given, and the words themselves."""

    name: str
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    source_text: str = ""


class _NotACallError(Exception):
    """The text goes on in another way than a call does."""


def find_calls(text: str) -> Iterator[Call]:
    """Give the complete calls of a text in their order; none inside another.

    Examples
    --------
    >>> [(call.name, call.args) for call in find_calls("so: click(1, 2); type('a(b)')")]
    [('click', [1, 2]), ('type', ['a(b)'])]
    """
    start = _START.search(text)
    while start is not None:
        try:
            args, kwargs, end = _arguments_calls(text, start.end())
        except _NotACallError:
            end = start.end()
        else:
            yield Call(start[1], args, kwargs, text[start.start() : end])
        start = _START.search(text, end)


def _arguments_calls(text: str, at: int) -> tuple[list[Value], dict[str, Value], int]:
    """Read what stands in the brackets, from behind the first one."""
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    while len(args) + len(kwargs) < _MAX_VALUES:
        at = _skip(text, at)
        if text.startswith(")", at):
            return args, kwargs, at + 1
        keyword = _KEYWORD.match(text, at)
        value, at = _value(text, keyword.end() if keyword else at, depth=0)
        if keyword:
            kwargs[keyword[1]] = value
        else:
            args.append(value)
        at = _behind_comma(text, at, ")")
    raise _NotACallError


def _value(text: str, at: int, depth: int) -> tuple[Value, int]:
    first = text[at : at + 1]
    if first and first in "([":
        return _values(text, at + 1, ")" if first == "(" else "]", depth + 1)
    if first in _STRINGS:
        found = _STRINGS[first].match(text, at)
        if found:
            return _ESCAPE.sub(
                lambda m: _ESCAPES.get(m[1], m[1]), found[1]
            ), found.end()
    elif found := _NUMBER_CALLS.match(text, at):
        number = found[0]
        return float(number) if "." in number else int(number), found.end()
    elif found := _WORD.match(text, at):
        return found[0], found.end()
    raise _NotACallError


def _values(text: str, at: int, close: str, depth: int) -> tuple[list[Value], int]:
    """Read a list, from behind its first bracket."""
    values: list[Value] = []
    while len(values) < _MAX_VALUES and depth <= _MAX_DEPTH:
        at = _skip(text, at)
        if text.startswith(close, at):
            return values, at + 1
        value, at = _value(text, at, depth)
        values.append(value)
        at = _behind_comma(text, at, close)
    raise _NotACallError


def _behind_comma(text: str, at: int, close: str) -> int:
    """Return where the next value may stand; a bracket that closes stays."""
    at = _skip(text, at)
    if text.startswith(",", at):
        return at + 1
    if text.startswith(close, at):
        return at
    raise _NotACallError


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


_MAX_POINT = 200  # characters: `<|box_start|>(1234,1234)<|box_end|>` has 35
_MAX_NUMBER = 1e9
_NUMBER_VALUES = re.compile(r"[+-]?\d{1,9}(?:\.\d{1,15})?")


def as_point(value: object) -> Point | None:
    """Read `[x, y]`, a box of four numbers (its middle), or text with such numbers.

    Examples
    --------
    >>> as_point("<point>10 20</point>"), as_point([0, 0, 4, 2]), as_point("here")
    ((10, 20), (2.0, 1.0), None)
    """
    if isinstance(value, str):
        found = _NUMBER_VALUES.findall(value[:_MAX_POINT])
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


# Name of a call -> kind and variant. Names of pyautogui are written with underscores.
NAMES: dict[str, tuple[Kind, str | None]] = {
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
    """Return the action that a call stands for; None where it is none.

    Parameters
    ----------
    call : Call
    otherwise : str
        What points count in that are not shares of the screen.
    """
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
            "coordinates": counted_in(points, otherwise) if points else None,
            "source_text": call.source_text,
            **fields,
        }
    )


def _click(call: Call) -> Fields | None:
    points = points_of(call)
    # Without anything it is where the mouse is; with something else it is no click.
    if not points and (call.args or call.kwargs):
        return None
    fields = _first(points)
    if call.kwargs.get("clicks") == 2:  # noqa: PLR2004 pyautogui's double click
        fields["kind"] = "double_click"
    if given(call, "button") in ("right", "middle"):
        fields["variant"] = given(call, "button")
    return fields


def _drag(call: Call) -> Fields | None:
    points = points_of(call)
    direction = as_direction(given(call, "direction"))
    if len(points) > 1:
        return {"point": points[0], "end_point": points[1]}
    if direction:  # a swipe of mobile agents
        return {"kind": "scroll", "direction": direction, **_first(points)}
    return {"end_point": points[0]} if points else None


def _type(call: Call) -> Fields | None:
    text = as_text(given(call, "content", "text", "message", "app_name", at=0))
    return None if text is None else {"text": text}


def _scroll(call: Call) -> Fields | None:
    numbers = numbers_of(call)
    far = given(call, "pixels", "clicks", "amount")
    if far is None and len(numbers) % 2:  # pyautogui: how far, then where
        far, numbers = numbers[0], numbers[1:]
    fields = _first(points_of(call, numbers))
    words = map(as_direction, [given(call, "direction"), *call.args])
    direction = next(filter(None, words), None)
    if direction is None and is_number(far):
        forth, back = ("right", "left") if call.name == "hscroll" else ("up", "down")
        direction = back if far < 0 else forth
    if is_number(far):
        fields["amount"] = abs(far)
    return {**fields, "direction": direction} if direction else None


def _key(call: Call) -> Fields | None:
    value = given(call, "key", "keys", "button", "text")
    if value is None and call.args:
        value = call.args if len(call.args) > 1 else call.args[0]
    if value is None and call.name.startswith("press_"):
        value = call.name.removeprefix("press_")
    keys = as_keys(value)
    return {"keys": keys} if keys else None


def _wait(call: Call) -> Fields | None:
    seconds = given(call, "time", "seconds", at=0)
    return {"amount": seconds} if is_number(seconds) else {}


def _finished(call: Call) -> Fields | None:
    fields: Fields = {"text": as_text(given(call, "content", "text", at=0))}
    status = as_text(given(call, "status"))
    return {**fields, "variant": status} if status else fields


_READERS: dict[Kind, Callable[[Call], Fields | None]] = {
    **dict.fromkeys(("click", "double_click", "move"), _click),
    "drag": _drag,
    **dict.fromkeys(("type", "open"), _type),
    "scroll": _scroll,
    "key": _key,
    "wait": _wait,
    "finished": _finished,
}


def _first(points: list[Point]) -> Fields:
    return {"point": points[0]} if points else {}


_MAX_JSON = 100_000  # characters of one tool call
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TEXTS = ("text", "content", "status")  # which may look like numbers


def json_calls(text: str) -> Iterator[Call]:
    """Give the calls in tags; where there is no tag, the text may be one call."""
    for part in text.split(_OPEN)[1:] or [text]:
        inside = part.partition(_CLOSE)[0]
        source = inside[inside.find("{") : inside.rfind("}") + 1]
        match _arguments_tagged_calls(_parsed(source)):
            case {"action": str(name), **arguments}:
                kwargs = {str(key): value for key, value in arguments.items()}
                yield Call(name, kwargs=kwargs, source_text=source)


def xml_calls(text: str) -> Iterator[Call]:
    """Give the complete calls of Qwen3-Coder: `<function=...>` with `<parameter=...>`.

    Examples
    --------
    >>> text = "<function=computer_use><parameter=action>wait</parameter></function>"
    >>> [call.name for call in xml_calls(text)]
    ['wait']
    """
    for part in text.split("<function=")[1:]:
        inside, close, _ = part.partition("</function>")
        kwargs = dict(_parameters(inside)) if close else {}
        name = kwargs.pop("action", None)
        if isinstance(name, str):
            source = f"<function={inside}{close}"
            yield Call(name.strip(), kwargs=kwargs, source_text=source)


def _parameters(inside: str) -> Iterator[tuple[str, object]]:
    for part in inside.split("<parameter=")[1:]:
        name, _, rest = part.partition(">")
        value = rest.partition("</parameter>")[0]
        value = value.removeprefix("\n").removesuffix("\n")
        parsed = None if name in _TEXTS else _parsed(value)
        yield name, value if parsed is None else parsed


def _arguments_tagged_calls(call: object) -> object:
    """Return the arguments of a call, which may be JSON in a string themselves."""
    match call:
        case {"arguments": str(source)}:
            return _parsed(source)
        case {"arguments": arguments}:
            return arguments
    return None


def _parsed(source: str) -> object:
    try:
        return json.loads(source) if len(source) <= _MAX_JSON else None
    except (ValueError, RecursionError):
        return None

"""From a call to the action that it names, in any of the grammars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rounddiag.vision.actions.action import Action
from rounddiag.vision.actions.arguments import given, numbers_of, points_of
from rounddiag.vision.actions.values import (
    as_direction,
    as_keys,
    as_text,
    counted_in,
    is_number,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rounddiag.vision.actions.action import Coordinates, Kind, Point
    from rounddiag.vision.actions.calls import Call

    Fields = dict[str, Any]

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

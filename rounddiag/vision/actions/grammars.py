"""The grammars that GUI agents write their actions in."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rounddiag.vision.actions.action import Action
from rounddiag.vision.actions.arguments import POINTS
from rounddiag.vision.actions.calls import Call, find_calls
from rounddiag.vision.actions.reading import NAMES, read_call
from rounddiag.vision.actions.tagged_calls import json_calls, xml_calls

if TYPE_CHECKING:
    from rounddiag.vision.actions.action import Coordinates, Kind

_CAPITAL = re.compile(r"(?<=[a-z])[A-Z]")
_CODES: dict[str, Kind] = {"WAIT": "wait", "DONE": "finished", "FAIL": "finished"}
_CODE = re.compile(r"(?m)(?:^|```)[ \t]{0,8}(WAIT|DONE|FAIL)[ \t]{0,8}(?=```|<\||$)")
_MODULES = ("pyautogui", "time")
_RELATIVE = ("drag", "move")  # by how far, from where the mouse is
# The other names stand in prose and code too, or belong to one grammar only.
_UI_TARS = NAMES.keys() - {
    *("answer", "key", "open", "sleep", "terminate", "typewrite", "write"),
}


def tool_calls(text: str) -> list[Action]:
    """Return Qwen's `computer_use` and `mobile_use` calls: JSON in tags, or XML.

    Points count in pixels of the picture that the model saw, as for Qwen2.5-VL. Those
    of Qwen3-VL count in thousandths, which the text does not say: pass
    `coordinates="thousand"` to `parse_action`.

    Examples
    --------
    >>> (action,) = tool_calls(
    ...     '<tool_call>{"name": "computer_use", "arguments":'
    ...     ' {"action": "left_click", "coordinate": [12, 34]}}</tool_call>'
    ... )
    >>> action.kind, action.point, action.coordinates
    ('click', (12, 34), 'resized')
    """
    calls = (*json_calls(text), *xml_calls(text))
    found = [read_call(call, "resized") for call in calls]
    return [action for action in found if action is not None]


def pyautogui_calls(text: str) -> list[Action]:
    """Return calls of pyautogui, and `WAIT`, `DONE` and `FAIL` in lines of their own.

    Points count in pixels of the screen, and in shares of it where all are written as
    such. A drag without a start begins where the mouse was moved to last.

    Examples
    --------
    >>> [(a.kind, a.point) for a in pyautogui_calls("pyautogui.doubleClick(3, 4)")]
    [('double_click', (3, 4))]
    """
    found: list[Action] = []
    for call in find_calls(text):
        module, _, name = call.name.partition(".")
        if module in _MODULES and name not in _RELATIVE:
            plain = replace(call, name=_CAPITAL.sub(r"_\g<0>", name).lower())
            action = read_call(plain, "original")
            found += [_started(action, found)] if action else []
    for code in _CODE.findall(text):
        ending = Action(kind=_CODES[code], variant=code.lower(), source_text=code)
        found.append(ending)
    return found


def _started(action: Action, before: list[Action]) -> Action:
    """Begin a drag where the mouse is."""
    is_open = action.end_point is not None and action.point is None
    if is_open and before and before[-1].coordinates == action.coordinates:
        return replace(action, point=before[-1].end_point or before[-1].point)
    return action


def named_calls(text: str) -> list[Action]:
    """Return the actions of UI-TARS, or of plain calls such as `click(3, 4)`.

    Boxes (`start_box='(x,y)'`, also with `<|box_start|>`) count in pixels of the
    picture that the model saw, as UI-TARS-1.5 writes them; `<point>x y</point>` in
    thousandths; plain numbers in pixels of the screen.

    Examples
    --------
    >>> (action,) = named_calls("Action: click(start_box='(12,34)')")
    >>> action.kind, action.point, action.coordinates
    ('click', (12, 34), 'resized')
    """
    calls = (call for call in find_calls(text) if call.name in _UI_TARS)
    found = [read_call(call, _counted_in(call)) for call in calls]
    return [action for action in found if action is not None]


def _counted_in(call: Call) -> Coordinates:
    if "<point>" in call.source_text:
        return "thousand"
    return "resized" if call.kwargs.keys() & set(POINTS) else "original"

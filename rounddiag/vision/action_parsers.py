"""The grammars that are tried, and a registry for others."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias, get_args

from rounddiag.action_grammar import (
    TOOL_CALL,
    TOOL_CALL_END,
    Call,
    find_calls,
    json_calls,
    tool_call_fault,
    xml_calls,
)
from rounddiag.errors import FrameError, require_one_of
from rounddiag.vision.actions import (
    NAMES,
    POINTS,
    Action,
    ActionKind,
    Coordinates,
    read_call,
)

_CAPITAL = re.compile(r"(?<=[a-z])[A-Z]")
_CODES: dict[str, ActionKind] = {"WAIT": "wait", "DONE": "finished", "FAIL": "finished"}
_CODE = re.compile(r"(?m)(?:^|```)[ \t]{0,8}(WAIT|DONE|FAIL)[ \t]{0,8}(?=```|<\||$)")
_MODULES = ("pyautogui", "time")
_RELATIVE = ("drag", "move")  # arguments are distances from the mouse pointer
# The other names occur in prose and code as well, or belong to another grammar.
_UI_TARS = NAMES.keys() - {
    *("answer", "key", "open", "sleep", "terminate", "typewrite", "write")
}


def tool_calls(text: str) -> list[Action]:
    """Return Qwen's `computer_use` and `mobile_use` calls: JSON in tags, or XML.

    Points are pixels of the picture that the model saw, as in Qwen2.5-VL. Qwen3-VL uses
    thousandths, which the text does not show: pass `coordinates="thousand"` to
    `parse_action`.

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
    actions = [read_call(call, "resized") for call in calls]
    return [action for action in actions if action is not None]


def pyautogui_calls(text: str) -> list[Action]:
    """Return calls of pyautogui, and `WAIT`, `DONE` and `FAIL` on lines of their own.

    Points are pixels of the screen, or fractions of it if all are written as such. A
    drag without a start begins at the last position of the mouse.

    Examples
    --------
    >>> [(a.kind, a.point) for a in pyautogui_calls("pyautogui.doubleClick(3, 4)")]
    [('double_click', (3, 4))]
    """
    actions: list[Action] = []
    for call in find_calls(text):
        module, _, name = call.name.partition(".")
        if module in _MODULES and name not in _RELATIVE:
            plain = replace(call, name=_CAPITAL.sub(r"_\g<0>", name).lower())
            action = read_call(plain, "original")
            actions += [_start_at_pointer(action, actions)] if action else []
    for code in _CODE.findall(text):
        ending = Action(kind=_CODES[code], variant=code.lower(), source_text=code)
        actions.append(ending)
    return actions


def _start_at_pointer(action: Action, before: list[Action]) -> Action:
    """Start a drag without a start at the mouse pointer."""
    is_open = action.end_point is not None and action.point is None
    if is_open and before and before[-1].coordinates == action.coordinates:
        return replace(action, point=before[-1].end_point or before[-1].point)
    return action


def named_calls(text: str) -> list[Action]:
    """Return the actions of UI-TARS, or of plain calls such as `click(3, 4)`.

    Boxes (`start_box='(x,y)'`, also with `<|box_start|>`) are pixels of the picture
    that the model saw, as in UI-TARS-1.5; `<point>x y</point>` are thousandths; plain
    numbers are pixels of the screen.

    Examples
    --------
    >>> (action,) = named_calls("Action: click(start_box='(12,34)')")
    >>> action.kind, action.point, action.coordinates
    ('click', (12, 34), 'resized')
    """
    calls = (call for call in find_calls(text) if call.name in _UI_TARS)
    actions = [read_call(call, _coordinate_unit(call)) for call in calls]
    return [action for action in actions if action is not None]


def _coordinate_unit(call: Call) -> Coordinates:
    if "<point>" in call.source_text:
        return "thousand"
    return "resized" if call.kwargs.keys() & set(POINTS) else "original"


def computer_calls(text: str) -> list[Action]:
    """Return calls of a tool whose argument `action` or `type` names the action.

    So are the calls of Anthropic's and OpenAI's `computer`, as messages have them.
    Points are pixels of the picture that the model saw.

    Examples
    --------
    >>> (action,) = computer_calls("computer(action='left_click', coordinate=[12, 34])")
    >>> action.kind, action.point, action.coordinates
    ('click', (12, 34), 'resized')
    """
    actions = []
    for call in find_calls(text):
        key = "action" if "action" in call.kwargs else "type"
        name = call.kwargs.get(key)
        if call.name.startswith("computer") and isinstance(name, str):
            rest = {
                _ARGUMENTS.get(other, other): value
                for other, value in call.kwargs.items()
                if other != key
            }
            actions.append(read_call(replace(call, name=name, kwargs=rest), "resized"))
    return [action for action in actions if action is not None]


# Of Anthropic's scrolls.
_ARGUMENTS = {"scroll_direction": "direction", "scroll_amount": "amount"}

Parser: TypeAlias = Callable[[str], Sequence[Action]]

_BUILT_IN: dict[str, Parser] = {
    "qwen": tool_calls,
    "pyautogui": pyautogui_calls,
    "ui_tars": named_calls,
    "computer": computer_calls,
}
_REGISTERED: dict[str, Parser] = {}
# Characters, from the end: far more than a round has; bounds the time.
_MAX_TEXT = 100_000
_THINK = "<think>"
_OPEN_CALL = re.compile(r"(?<![\w.])(?P<name>[\w.]{1,64})\([^()]{0,2000}$")


def register_parser(name: str, parser: Parser | None) -> None:
    """Register a grammar that `parse_action` tries before all others.

    Parameters
    ----------
    name : str
        An existing parser of this name is replaced.
    parser : callable, or None
        Takes the text of a round and returns its actions; an empty list if the text is
        not in its grammar. The text is untrusted: do not evaluate it. None removes the
        parser of this name.

    Examples
    --------
    >>> def taps(text):
    ...     verb, _, where = text.partition(" ")
    ...     return [Action(kind="click", text=where)] if verb == "TAP" else []
    >>> register_parser("taps", taps)
    >>> parse_action("TAP Save").text
    'Save'
    >>> register_parser("taps", None)
    """
    if parser is None:
        _REGISTERED.pop(name, None)
    else:
        _REGISTERED[name] = parser


def parse_actions(
    text: str,
    *,
    parsers: Sequence[str] | None = None,
    coordinates: Coordinates | None = None,
) -> list[Action]:
    """Return all complete actions of a text, from the first grammar that finds any.

    Parameters
    ----------
    text : str
        What the model wrote in a round. It is not evaluated. Only the last 100,000
        characters are read. Text after an unclosed `<think>` is a thought.
    parsers : sequence of str, optional
        Which grammars to try, in this order. By default the registered ones, then
        `qwen` (tool calls in JSON or XML), `pyautogui`, `ui_tars` (also plain calls
        such as `click(3, 4)`) and `computer` (`computer(action='left_click', ...)`).
    coordinates : str, optional
        The unit of coordinates, if that of the grammar is wrong for the model:
        `original`, `resized`, `unit` or `thousand`.

    Returns
    -------
    list of Action
        Empty if no grammar finds one.

    Examples
    --------
    >>> [action.kind for action in parse_actions("click(3, 4) then wait()")]
    ['click', 'wait']
    """
    _check(text, coordinates)
    answer = _without_open_thought(text[-_MAX_TEXT:])
    # Registered parsers come first, and replace built-in ones of the same name.
    known = _REGISTERED | _BUILT_IN | _REGISTERED
    for name in known if parsers is None else parsers:
        advice = "Register it with `register_parser`."
        require_one_of(name, known, key="parsers", advice=advice)
        actions = list(known[name](answer))
        if actions:
            return [_with_coordinates(action, coordinates) for action in actions]
    return []


def parse_action(
    text: str,
    *,
    parsers: Sequence[str] | None = None,
    coordinates: Coordinates | None = None,
) -> Action:
    """Return the action of a round: the last complete one of its text.

    Earlier ones are usually part of the thought, which may mention actions. A text
    without an action gives one of kind `unknown` with the whole text.

    Parameters
    ----------
    text, parsers, coordinates
        As in `parse_actions`.

    Examples
    --------
    >>> parse_action("<think>Not click(1, 2).</think> click(3, 4)").point
    (3, 4)
    >>> parse_action("I give up").kind
    'unknown'
    """
    actions = parse_actions(text, parsers=parsers, coordinates=coordinates)
    return actions[-1] if actions else Action(kind="unknown", source_text=text)


def explain_no_action(text: str) -> tuple[str, str]:
    """Return what a text without an action has in its place, and why it is none.

    Parameters
    ----------
    text : str
        A text for which `parse_action` returns the kind `unknown`.

    Returns
    -------
    tuple of str
        The words that look most like an action, and a sentence.

    Examples
    --------
    >>> explain_no_action("Now clik(3, 4)")
    ('clik(3, 4)', '`clik` is not an action of any known grammar')
    >>> explain_no_action("click(3, 4")
    ('click(3, 4', '`click(` is not closed: the text ends before its bracket')
    """
    answer = _without_open_thought(text[-_MAX_TEXT:])
    if answer != text[-_MAX_TEXT:]:
        return text[len(answer) :], "`<think>` is not closed: all after it is a thought"
    answer = answer.rpartition("</think>")[2].strip()
    if not answer:
        return (
            "",
            "nothing follows the thought" if text.strip() else "the text is empty",
        )
    if TOOL_CALL in answer:
        inside, end, _ = answer.rpartition(TOOL_CALL)[2].partition(TOOL_CALL_END)
        fault = tool_call_fault(inside) if end else f"`{TOOL_CALL}` is not closed"
        return inside.strip(), fault
    calls = [*find_calls(answer)]
    if calls:
        name = calls[-1].name
        is_known = name.rpartition(".")[2] in NAMES
        why = "has no arguments of that action" if is_known else "is not an action of"
        return calls[-1].source_text, f"`{name}` {why}" + (
            "" if is_known else " any known grammar"
        )
    if opened := _OPEN_CALL.search(answer):
        why = f"`{opened['name']}(` is not closed: the text ends before its bracket"
        return answer[opened.start() :], why
    return answer.splitlines()[-1], "no call and no tool call is in the text"


def _with_coordinates(action: Action, coordinates: Coordinates | None) -> Action:
    is_other = coordinates is not None and action.coordinates is not None
    return replace(action, coordinates=coordinates) if is_other else action


def _check(text: object, coordinates: object) -> None:
    if not isinstance(text, str):
        raise FrameError.build(
            key="text",
            expected="the text of a round",
            found=f"{text!r:.80}",
            advice="Join its pieces, the column `text` of `rounddiag.token_frame`.",
        )
    if coordinates is not None:
        advice = "Leave it out for what the grammar says."
        known = get_args(Coordinates)
        require_one_of(coordinates, known, key="coordinates", advice=advice)


def _without_open_thought(text: str) -> str:
    before, _, thought = text.rpartition(_THINK)
    return text if "</think>" in thought or _THINK not in text else before

"""The grammar of actions in a model's text: calls, and tool calls in JSON or XML.

Two packages share it: `rounddiag.text` assigns a role to every part of an action, even
an incomplete one, and `rounddiag.vision` turns complete calls into actions.

The text is untrusted and may be long. Every pattern is bounded and can match the same
characters in only one way, so that time is linear in the length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

_Value: TypeAlias = "str | int | float | list[_Value]"

TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
_MAX_DEPTH, _MAX_VALUES = 3, 64
_MAX_JSON = 100_000  # characters of one tool call
_TEXT_PARAMETERS = ("text", "content", "status")  # their values may look like numbers
_CALL = re.compile(r"(?<![\w.])(?P<name>[^\W\d]\w{0,31}(?:\.\w{1,32})?)[ \t]{0,4}\(")
# An unescaped apostrophe inside a word does not end a string.
_STRINGS = "|".join(
    rf"{quote}(?:[^{quote}\\]|\\.|(?<=\w){quote}(?=\w)){{0,20000}}{quote}"
    for quote in "'\""
)
# One part of a call or of JSON; every character matches one of them.
_PART = re.compile(
    rf"(?P<string>{_STRINGS})(?P<key>\s*:)?"
    r"|(?P<word>[^\W\d]\w{0,63})(?P<keyword>\s*=)?"
    r"|(?P<number>[+-]?(?:\d{1,15}(?:\.\d{0,15})?|\.\d{1,15}))"
    r"|(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<space>\s+)|.",
    re.DOTALL,
)
_CONTINUES = re.compile(r"[\w.]")  # follows what is then no number or word
_ESCAPE = re.compile(r"\\([nrt'\"\\])")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def bracket_parts(text: str, at: int) -> Iterator[re.Match[str]]:
    """Yield the parts of a call or a JSON object, up to its closing bracket.

    Examples
    --------
    >>> [part[0] for part in bracket_parts("click(x=1, 'a)') ...", 5)]
    ['(', 'x=', '1', ',', ' ', "'a)'", ')']
    """
    depth = 0
    for part in _PART.finditer(text, at):
        yield part
        depth += bool(part["open"]) - bool(part["close"])
        if depth == 0:
            return


@dataclass(frozen=True)
class Call:
    """One complete call: its name, its arguments, and the text itself."""

    name: str
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    source_text: str = ""


class _NotACallError(Exception):
    """The text turns out to be no call."""


def find_calls(text: str) -> Iterator[Call]:
    """Yield the complete calls of a text in order, without nested ones.

    Examples
    --------
    >>> [(call.name, call.args) for call in find_calls("so: click(1, 2); type('a(b)')")]
    [('click', [1, 2]), ('type', ['a(b)'])]
    """
    start = _CALL.search(text)
    while start is not None:
        parts = bracket_parts(text, start.end() - 1)
        parts = (part for part in parts if not part["space"])
        next(parts)  # the opening bracket
        try:
            values, end = _values(parts, ")", depth=0)
        except _NotACallError:
            end = start.end()
        else:
            args = [value for key, value in values if key is None]
            kwargs = {key: value for key, value in values if key is not None}
            yield Call(start["name"], args, kwargs, text[start.start() : end])
        start = _CALL.search(text, end)


def _values(
    parts: Iterator[re.Match[str]], close: str, depth: int
) -> tuple[list[tuple[str | None, _Value]], int]:
    """Return values up to a closing bracket, each with its keyword, and its end."""
    values: list[tuple[str | None, _Value]] = []
    if depth > _MAX_DEPTH:
        raise _NotACallError
    for part in parts:
        if part[0] == close:
            return values, part.end()
        key = part["word"] if part["keyword"] and depth == 0 else None
        first = next(parts, None) if key else part
        values.append((key, _value(first, parts, depth)))
        following = next(parts, None)
        if following is None or len(values) == _MAX_VALUES:
            break
        if following[0] == close:
            return values, following.end()
        if following[0] != ",":
            break
    raise _NotACallError


def _value(
    part: re.Match[str] | None, parts: Iterator[re.Match[str]], depth: int
) -> _Value:
    if part is None:
        raise _NotACallError
    if part[0] in {"(", "["}:
        close = ")" if part[0] == "(" else "]"
        return [value for _, value in _values(parts, close, depth + 1)[0]]
    if part["string"] and not part["key"]:
        inside = part["string"][1:-1]
        return _ESCAPE.sub(lambda m: _ESCAPES.get(m[1], m[1]), inside)
    continues = _CONTINUES.match(part.string, part.end())
    if part["number"] and not continues:
        return float(part[0]) if "." in part[0] else int(part[0])
    is_call = part.string.startswith("(", part.end())
    if part["word"] and not (part["keyword"] or continues or is_call):
        return part[0]
    raise _NotACallError


def json_calls(text: str) -> Iterator[Call]:
    """Yield the calls in `<tool_call>` tags; without tags, the text may be one call."""
    for part in text.split(TOOL_CALL)[1:] or [text]:
        inside = part.partition(TOOL_CALL_END)[0]
        source = inside[inside.find("{") : inside.rfind("}") + 1]
        match _arguments(_parse_json(source)):
            case {"action": str(name), **arguments}:
                kwargs = {str(key): value for key, value in arguments.items()}
                yield Call(name, kwargs=kwargs, source_text=source)


def tool_call_fault(inside: str) -> str:
    """Say why the inside of `<tool_call>` tags is no action.

    Examples
    --------
    >>> tool_call_fault('{"name": "computer", "arguments": {"x": 1}}')
    'the tool call has no `arguments` with an `action`'
    """
    source = inside[inside.find("{") : inside.rfind("}") + 1] or inside
    try:
        json.loads(source[:_MAX_JSON])
    except RecursionError:
        return "the JSON of the tool call is nested too deeply"
    except ValueError as error:
        return f"the JSON of the tool call is damaged: {error!s:.80}"
    names = [call.name for call in json_calls(inside)]
    if not names:
        return "the tool call has no `arguments` with an `action`"
    return f"`{names[-1]}` is not an action with these arguments"


def xml_calls(text: str) -> Iterator[Call]:
    """Yield the complete calls of Qwen3-Coder: `<function=...>` with `<parameter=...>`.

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
        parsed = None if name in _TEXT_PARAMETERS else _parse_json(value)
        yield name, value if parsed is None else parsed


def _arguments(call: object) -> object:
    """Return the arguments of a call, which may themselves be JSON in a string."""
    match call:
        case {"arguments": str(source)}:
            return _parse_json(source)
        case {"arguments": arguments}:
            return arguments
    return None


def _parse_json(source: str) -> object:
    try:
        return json.loads(source) if 0 < len(source) <= _MAX_JSON else None
    except (ValueError, RecursionError):
        return None

"""Tool calls in tags, in JSON or in XML: read, never run.

Texts are split, not searched with patterns: the time is in proportion to the length.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rounddiag.vision.actions.calls import Call

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_JSON = 100_000  # characters of one tool call
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TEXTS = ("text", "content", "status")  # which may look like numbers


def json_calls(text: str) -> Iterator[Call]:
    """Give the calls in tags; where there is no tag, the text may be one call."""
    for part in text.split(_OPEN)[1:] or [text]:
        inside = part.partition(_CLOSE)[0]
        source = inside[inside.find("{") : inside.rfind("}") + 1]
        match _arguments(_parsed(source)):
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


def _arguments(call: object) -> object:
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

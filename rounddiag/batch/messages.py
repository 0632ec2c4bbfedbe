"""What a message says, in the layouts of all APIs: texts, thoughts, calls, pictures.

=====================  ==============================================================
`read_content`         content as pieces: texts, blocks, items
`read_message`         a message: its role, its pieces, and its other fields
`messages_in`          a conversation as messages
`write_text`           the pieces as one text
`describe_calls`       the tools that are called, as text
`new_in`               which messages of a call's prompt are new
=====================  ==============================================================

Content is a text, a block, or a list of them:

=====================  ==============================================================
OpenAI                 parts of chat completions; items of the Responses API
Anthropic              `tool_use`, `tool_result`, `thinking`, `source` of a picture
Gemini                 `parts`: `inline_data`, `function_call`, `function_response`
MCP                    `data` with `mimeType`, `resource`
Bedrock, Vercel        `toolUse`, `toolResult`; `tool-call`, `tool-result`, `file`
LangChain              messages in `data` or `kwargs`, `human` and `ai`
ATIF, Qwen, Inspect    `path`, `image`, `image_base64`, `bytes`
=====================  ==============================================================

What a key holds follows from its name, and from the `type` of its block. A field that
is not known becomes a piece as well: it has the name under which it is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Literal, TypeAlias

import numpy as np

from rounddiag.batch.sequence_difference import appends
from rounddiag.batch.turns import GENERATED
from rounddiag.text.json_text import JsonError, object_in, objects_in, parse_json

Fields: TypeAlias = Mapping[str, Any]

TOOL = "tool"  # the role of what a tool returned


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of what a message says.

    Attributes
    ----------
    kind: `unknown` is a field that is left out.
    text: Of a text or a thought; the name of a call, or of what is left out.
    arguments: Of a call.
    picture: What to read it from: a data URL, the path of a file, bytes, an image.
    is_output: Whether a tool returned it.
    is_error: Whether the tool failed.
    """

    kind: Literal["text", "thought", "call", "picture", "unknown"]
    text: str = ""
    arguments: object = ""
    picture: object = None
    is_output: bool = False
    is_error: bool = False


@dataclass(kw_only=True)
class Message:
    """What one role said.

    Attributes
    ----------
    others: Fields that are no part of what was said.
    """

    role: str
    pieces: list[Piece] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)

    @property
    def calls(self) -> list[Piece]:
        """The tools that it calls."""
        return [piece for piece in self.pieces if piece.kind == "call"]


def is_empty(value: object) -> bool:
    """Return whether a field says nothing: null, or an empty text, list or object."""
    return value is None or (hasattr(value, "__len__") and not len(value))


def messages_in(value: object) -> list[dict[str, Any]]:
    """Return a conversation as messages: a list of them, or the text of one.

    Examples
    --------
    >>> messages_in("Go.")
    [{'role': 'user', 'content': 'Go.'}]
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return objects_in(value)


# Fields that say how to read others, or which belong together.
MARKS = {
    *("type", "role", "index", "id", "call_id", "tool_call_id", "tool_use_id"),
    *("source_call_id", "media_type", "mime_type", "mimeType", "detail", "is_error"),
    *("isError", "thought", "redacted", "status", "object", "toolUseId"),
    *("toolCallId", "mediaType"),
}
_ROLES = {"model": GENERATED}  # Gemini's
# LangChain's types of messages, and their roles.
_TYPES = {"human": "user", "ai": GENERATED, "system": "system", "tool": TOOL}
# Of a message: what it says, in this order; its other fields are no part of that.
SAID = (
    *("reasoning_content", "reasoning", "reasoning_details", "thinking"),
    *("thinking_blocks", "content", "parts", "text", "refusal"),
    *("tool_calls", "function_call", "images", "output", "error"),
)


def read_message(message: Fields) -> Message:
    """Return what a message, or an item of the Responses API, says.

    A message with nothing but the results of tools has the role `tool`.

    Examples
    --------
    >>> read_message({"type": "function_call_output", "output": "ok"}).role
    'tool'
    """
    message = _unwrapped(message)
    items = objects_in(message.get("output"))
    is_reply = any(map(_is_written, items))
    kind = str(message.get("type", ""))
    is_item = kind == "reasoning" or bool(_CALL.search(kind) or _OUTPUT.search(kind))
    said = {name: message[name] for name in SAID if name in message}
    others = {
        name: value
        for name, value in message.items()
        if not (is_item or name in said or name in MARKS or is_empty(value))
    }
    ends = [s for i in (message, *items) if isinstance(s := i.get("status"), str) and s]
    others |= {"status": ends[-1]} if ends else {}
    pieces = _once(read_content([message]) if is_item else _pieces(said, ""))
    given = message.get("role")
    role = GENERATED if is_reply or is_item else _TYPES.get(kind, "user")
    role = given if isinstance(given, str) and given else role
    known = [piece for piece in pieces if piece.kind != "unknown"]
    is_result = known and all(piece.is_output for piece in known)
    if is_result and (is_item or role == "user"):
        role = TOOL
    return Message(role=_ROLES.get(role, role), pieces=pieces, others=others)


def _unwrapped(message: Fields) -> Fields:
    """Return a message that LangChain has put into `data` or `kwargs`."""
    for name in ("data", "kwargs"):
        inner = object_in(message.get(name))
        if "content" in inner:
            path = message.get("id")
            kind = path[-1] if isinstance(path, list) and path else message.get("type")
            kind = str(kind).removesuffix("Message").removesuffix("Chunk").lower()
            return {**inner, "type": kind.removesuffix("message")}
    return message


def _once(pieces: Iterable[Piece]) -> list[Piece]:
    """Return pieces without thoughts that several fields of a message repeat."""
    thoughts: set[str] = set()
    once = []
    for piece in pieces:
        if piece.kind == "thought":
            if piece.text in thoughts:
                continue
            thoughts.add(piece.text)
        once.append(piece)
    return once


def read_content(content: object) -> list[Piece]:
    """Return the pieces of a text, of a block of content, or of a list of both.

    Examples
    --------
    >>> call = {"type": "tool_use", "name": "click", "input": {"x": 1}}
    >>> [(piece.kind, piece.text) for piece in read_content(["I click.", call])]
    [('text', 'I click.'), ('call', 'click')]
    >>> read_content({"type": "input_audio", "input_audio": {"data": "UklG"}})[0].text
    'input_audio'
    """
    return [*_content(content, "")]


def _content(value: object, kind: str, _name: str = "") -> Iterator[Piece]:
    """Read what a field has whose value is content; `kind` is that of its block."""
    if isinstance(value, str):
        if value:
            is_thought = bool(_THOUGHT.search(kind))
            yield Piece(kind="thought" if is_thought else "text", text=value)
    elif isinstance(value, dict):
        yield from _block(value, kind)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, str | dict | list):
                yield from _content(item, kind)
            elif item is not None:
                yield _unknown(kind or "content", type(item).__name__)
    elif not is_empty(value):
        yield Piece(kind="text", text=str(plain_json(value)))


_CALL = re.compile(r"(_call|_use|^tool[-_]call|^functionCall)$")
_OUTPUT = re.compile(r"(_output|_result|_response|^tool-result|^functionResponse)$")
_THOUGHT = re.compile(r"(thinking|reasoning|^summary_text|^thought)")


def _block(block: Fields, around: str) -> Iterator[Piece]:
    """Read a block; that `around` it says what it does not: a thought, a result."""
    kind = str(block.get("type", ""))
    if block.get("thought") is True or _THOUGHT.search(around):
        kind = "thought"
    if any(str(block.get(name)).startswith("image/") for name in _MEDIA):
        kind = "image"
    is_part = kind.startswith("tool-") and not _OUTPUT.search(kind)  # of Vercel's pages
    if _CALL.search(kind) or is_part:
        yield from _call(block, kind)
        return
    failed = any(block.get(name) is True for name in ("is_error", "isError"))
    is_output = _OUTPUT.search(kind) is not None
    pieces = [*_pieces(block, kind)]
    if kind and (not block.keys() - MARKS or (failed and not pieces)):
        pieces = [_unknown("", kind)]
    for piece in pieces:
        yield replace(
            piece,
            is_output=piece.is_output or is_output,
            is_error=piece.is_error or failed,
        )


def _pieces(block: Fields, kind: str) -> Iterator[Piece]:
    """Read the fields of a block by their names."""
    for name, value in block.items():
        if name in MARKS or is_empty(value):
            continue
        read = _READERS.get(name)
        yield from [_unknown(kind, name)] if read is None else read(value, kind, name)


def _unknown(kind: str, name: str) -> Piece:
    """Return the name of a field that is not read: `text.annotations`, `video`."""
    text = name if kind in {"", name} else f"{kind}.{name}"
    return Piece(kind="unknown", text=text)


def _thoughts(value: object, _kind: str, _name: str) -> Iterator[Piece]:
    yield from _content(value, "thinking")


_NAMES = ("function_name", "name", "toolName", "function")
_ARGUMENTS = ("arguments", "input", "args", "action", "actions", "code", "queries")
_OF_CALLS = {*_NAMES, "custom", *MARKS, "status"}


def _call(call: Fields, kind: str = "tool_calls") -> Iterator[Piece]:
    """Read a call, in the layouts of OpenAI, Anthropic, Gemini, ATIF and LangChain."""
    inner: Fields = next(
        (call[n] for n in ("function", "custom") if isinstance(call.get(n), dict)), call
    )
    names = (inner.get(name) for name in _NAMES)
    short = _CALL.sub("", kind).removeprefix("tool-") if call is inner else ""
    name = next((name for name in names if isinstance(name, str) and name), short)
    key = next((key for key in _ARGUMENTS if key in inner), "")
    arguments = inner.get(key, "")
    if isinstance(arguments, str):
        with suppress(JsonError):
            arguments = parse_json(arguments)
    yield Piece(kind="call", text=name, arguments=arguments)
    for fields in (call, inner) if inner is not call else (call,):
        for field_name, value in fields.items():
            if field_name in _OF_CALLS or field_name == key or is_empty(value):
                continue
            if kind == "image_generation_call" and field_name == "result":
                yield from _picture(value, kind, field_name)
            elif field_name in {"output", "outputs", "result", "results", "error"}:
                yield from _outputs(value, kind, field_name)
            else:
                yield _unknown(kind, field_name)


def _calls(value: object, _kind: str, name: str) -> Iterator[Piece]:
    if isinstance(value, str):  # tables have them as JSON
        with suppress(JsonError):
            value = parse_json(value)
    calls = [value] if isinstance(value, dict) else objects_in(value)
    if not calls:
        yield _unknown("", name)
    for call in calls:
        yield from _call(call, name)


def _outputs(value: object, kind: str, name: str) -> Iterator[Piece]:
    """Read what a tool returned; a list of calls and messages is the model's output."""
    items = objects_in(value)
    if name == "output" and any(_is_written(item) for item in items):
        yield from _content(value, "")
        return
    if isinstance(value, dict):
        value = _result(value)
    for piece in _content(value, kind if _OUTPUT.search(kind) else ""):
        yield replace(piece, is_output=True, is_error=name == "error")


def _is_written(item: Fields) -> bool:
    kind = str(item.get("type", ""))
    return kind in {"message", "reasoning"} or _CALL.search(kind) is not None


def _result(value: Fields) -> object:
    """Return a result that is content, else its one field of a usual name, or JSON."""
    if {"value"} <= value.keys() <= {"type", "value"}:  # of Vercel
        inner = value["value"]
        return inner if isinstance(inner, str | list) else _as_json(inner)
    if "content" in value or ("type" in value and value.keys() & _READERS.keys()):
        return value
    known = [name for name in ("output", "result", "message", "text") if name in value]
    rest = value.keys() - {*known[:1], *MARKS}
    if known and not rest and isinstance(value[known[0]], str):
        return value[known[0]]
    return _as_json(value)


def _response(value: object, kind: str, name: str) -> Iterator[Piece]:
    """Read Gemini's response of a function: `response`, and `parts` with pictures."""
    for field_name, part in object_in(value).items():
        if field_name in {*MARKS, "name"} or is_empty(part):
            continue
        if field_name in {"response", "parts"}:
            yield from _outputs(part, kind, name)
        else:
            yield _unknown(name, field_name)


def _tool_result(value: object, _kind: str, name: str) -> Iterator[Piece]:
    """Read Bedrock's result of a tool."""
    failed = object_in(value).get("status") == "error"
    for field_name, part in object_in(value).items():
        if field_name == "content":
            for piece in _content(part, ""):
                yield replace(piece, is_output=True, is_error=failed)
        elif field_name not in MARKS:
            yield _unknown(name, field_name)


def _json(value: object, _kind: str, _name: str) -> Iterator[Piece]:
    yield Piece(kind="text", text=_as_json(value))


def _picture(value: object, kind: str, name: str) -> Iterator[Piece]:
    """Read a picture: an address, base64, bytes, or an object with one of them."""
    if isinstance(value, list):
        for item in value:
            yield from _picture(item, kind, name)
        return
    if isinstance(value, dict):
        if is_picture_data(value):
            yield Piece(kind="picture", picture=value)
            return
        yield from _source(value, kind or name, name)
        return
    yield Piece(kind="picture", picture=_address(value, is_data=name in _BASE64))


def is_picture_data(value: Fields) -> bool:
    """Return whether an object has the bytes of a picture, as data sets do."""
    return not isinstance(value.get("bytes"), str | None)


_BASE64 = {"bytes", "image_base64", "b64_json", "data", "blob", "result"}
_SIGNED = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")  # PNG, JPEG, GIF, WebP
_SHORTEST = 64  # characters of a picture: no path starts so and is so long


def _address(value: object, *, is_data: bool, media: str = "") -> object:
    """Return a data URL of base64; other addresses, and bytes, as they are."""
    if not isinstance(value, str):
        return value
    value = value.removeprefix("file://")
    is_signed = value.startswith(_SIGNED) and len(value) >= _SHORTEST
    if value.startswith("data:") or not (is_data or is_signed):
        return value
    return f"data:{media or 'image/png'};base64,{value}"


def _source(value: object, kind: str, name: str) -> Iterator[Piece]:
    """Read an object that has a picture, or a text, and the type of its data."""
    fields = object_in(value)
    if not fields:
        yield _unknown(kind, name)
        return
    media = next((fields[n] for n in _MEDIA if isinstance(fields.get(n), str)), "")
    is_image = media.startswith("image/") if media else "image" in f"{kind} {name}"
    label = f"{kind}.{name}" if kind not in {"", name} else name
    for field_name, part in fields.items():
        if field_name in MARKS or is_empty(part):
            continue
        is_text = media.startswith("text/") and field_name == "data"
        if is_image and field_name == "source" and isinstance(part, dict):
            yield from _source(part, kind, name)  # of Bedrock
            continue
        if field_name in {"content", "text"} or is_text:
            yield from _content(part, "")
        elif is_image and field_name in _LOCATIONS:
            address = _address(part, is_data=field_name in _BASE64, media=media)
            yield Piece(kind="picture", picture=address)
        else:
            yield _unknown(label, field_name)


_MEDIA = ("media_type", "mime_type", "mimeType", "mediaType")
_LOCATIONS = ("url", "path", "data", "bytes", "blob", "b64_json")


def _data(value: object, kind: str, name: str) -> Iterator[Piece]:
    """Read data of a block that says what they are; those of a picture only."""
    reader = _picture if "image" in kind else _not_read
    yield from reader(value, kind, name)


def _not_read(_: object, kind: str, name: str) -> Iterator[Piece]:
    yield _unknown(kind, name)


_Reader: TypeAlias = Callable[[Any, str, str], Iterator[Piece]]
_READERS: dict[str, _Reader] = {
    **dict.fromkeys(("text", "content", "parts", "refusal", "logs"), _content),
    **dict.fromkeys(
        (*SAID[: SAID.index("content")], "summary"),
        _thoughts,
    ),
    **dict.fromkeys(("reasoningContent", "reasoningText"), _thoughts),
    **dict.fromkeys(("tool_calls", "function_call", "functionCall", "toolUse"), _calls),
    "toolResult": _tool_result,
    "json": _json,
    **dict.fromkeys(("output", "error"), _outputs),
    **dict.fromkeys(("function_response", "functionResponse"), _response),
    **dict.fromkeys(("image", "image_url", "images", "image_base64"), _picture),
    **dict.fromkeys(("inline_data", "inlineData", "source", "resource"), _source),
    **dict.fromkeys(("url", "path", "data", "bytes"), _data),
}


def write_text(message: Message) -> str:
    """Return the text of a message: its thoughts, its words and its tool calls.

    Thoughts, calls and, within a message of the model, results of tools are written as
    Qwen's chat template does.

    Examples
    --------
    >>> call = {"function": {"name": "click", "arguments": '{"x": 1}'}}
    >>> print(write_text(read_message({"content": "ok", "tool_calls": [call]})))
    ok
    <tool_call>
    {"name": "click", "arguments": {"x": 1}}
    </tool_call>
    """
    known = [piece for piece in message.pieces if piece.kind in _WRITTEN]
    parts = []
    is_inner = message.role == GENERATED
    for (kind, is_output), group in groupby(
        known, lambda piece: (piece.kind, piece.is_output)
    ):
        texts = [_written(piece) for piece in group]
        if kind == "thought":
            texts = ["<think>", *texts, "</think>"]
        elif is_output and is_inner:
            texts = ["<tool_response>", *texts, "</tool_response>"]
        parts += texts
    return "\n".join(parts)


_WRITTEN = ("text", "thought", "call")


def _written(piece: Piece) -> str:
    if piece.kind != "call":
        return piece.text
    call = {"name": piece.text, "arguments": piece.arguments}
    return f"<tool_call>\n{_as_json(call)}\n</tool_call>"


def describe_calls(calls: Iterable[Piece]) -> str | None:
    """Return the tools that a message calls, with their arguments, as text.

    Examples
    --------
    >>> calls = [{"name": "click", "arguments": {"x": 1}}, {"name": "wait"}]
    >>> describe_calls(read_content({"tool_calls": calls}))
    'click(x=1); wait()'
    """
    texts = []
    for call in calls:
        inner = call.arguments
        if isinstance(inner, dict):
            inner = ", ".join(f"{k}={_listed(v)!r}" for k, v in inner.items())
        texts.append(f"{call.text}({inner})")
    return "; ".join(texts) or None


def _listed(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def new_in(
    known: Sequence[Hashable], prompt: Sequence[Hashable]
) -> tuple[list[int], bool]:
    """Return which messages of a call's prompt are new, and if it was rewritten.

    A prompt continues what was known if it starts with it. In one that does not,
    because older turns were dropped or summarised, what stands after the last known
    message is new, and what was never said before.

    Examples
    --------
    >>> new_in("ab", "abc"), new_in("abc", "asc!")
    (([2], False), ([1, 3], True))
    """
    if appends(known, prompt):
        return [*range(len(known), len(prompt))], False
    last = {message: index for index, message in enumerate(prompt)}
    at = last.get(known[-1], -1)
    if at < 0:
        at = max(last.get(message, -1) for message in known)
    before = {*known}
    new = [i for i, message in enumerate(prompt) if i > at or message not in before]
    return new, True


def plain_json(value: object) -> object:
    """Return an array as JSON wants it; other values as text."""
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def _as_json(value: object) -> str:
    return json.dumps(value, default=plain_json, ensure_ascii=False)

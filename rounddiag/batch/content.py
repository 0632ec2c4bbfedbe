"""Content of a message as pieces, in the layouts of all APIs.

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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from rounddiag.text.json_text import JsonError, object_in, objects_in, parse_json
from rounddiag.vision import Screenshot

Fields: TypeAlias = Mapping[str, Any]


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


def is_empty(value: object) -> bool:
    """Return whether a field says nothing: null, or an empty text, list or object."""
    return value is None or (hasattr(value, "__len__") and not len(value))


# Fields that say how to read others, or which belong together.
MARKS = {
    *("type", "role", "index", "id", "call_id", "tool_call_id", "tool_use_id"),
    *("source_call_id", "media_type", "mime_type", "mimeType", "detail", "is_error"),
    *("isError", "thought", "redacted", "status", "object", "toolUseId"),
    *("toolCallId", "mediaType"),
}
# Of these, what a block without a `type`, and the data of a tool, have as their own.
_OWN = {"type", "id", "index", "status", "object", "role", "detail"}
# Of a message: what it says, in this order; its other fields are no part of that.
SAID = (
    *("reasoning_content", "reasoning", "reasoning_details", "thinking"),
    *("thinking_blocks", "content", "parts", "text", "refusal"),
    *("tool_calls", "function_call", "images", "output", "error"),
)


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
    elif is_image(value):
        yield Piece(kind="picture", picture=value)
    elif not is_empty(value):
        yield Piece(kind="text", text=str(plain_json(value)))


# The `type` of a call, and of what a tool returned.
CALL = re.compile(r"(_call|_use|^tool[-_]call|^functionCall)$")
OUTPUT = re.compile(r"(_output|_result|_response|^tool-result|^functionResponse)$")
_THOUGHT = re.compile(r"(thinking|reasoning|^summary_text|^thought)")


def _block(block: Fields, around: str) -> Iterator[Piece]:
    """Read a block; that `around` it says what it does not: a thought, a result."""
    kind = str(block.get("type", ""))
    if block.get("thought") is True or _THOUGHT.search(around):
        kind = "thought"
    if any(str(block.get(name)).startswith("image/") for name in _MEDIA):
        kind = "image"
    is_part = kind.startswith("tool-") and not OUTPUT.search(kind)  # of Vercel's pages
    if CALL.search(kind) or is_part:
        yield from _call(block, kind)
        return
    failed = any(block.get(name) is True for name in ("is_error", "isError"))
    is_output = OUTPUT.search(kind) is not None
    pieces = [*pieces_of(block, kind)]
    known = {name for name, value in block.items() if value is not None}
    if kind and not pieces and (failed or not known - MARKS):
        pieces = [_unknown("", kind)]
    for piece in pieces:
        yield replace(
            piece,
            is_output=piece.is_output or is_output,
            is_error=piece.is_error or failed,
        )


def is_image(value: object) -> bool:
    """Return whether a value is a picture of Pillow, or one that was read."""
    return isinstance(value, Screenshot) or type(value).__module__.startswith("PIL.")


def pieces_of(block: Fields, kind: str) -> Iterator[Piece]:
    """Read the fields of a block by their names."""
    for name, value in block.items():
        is_own = "type" not in block and name in _OWN
        if is_empty(value) or (is_mark(name, value) and not is_own):
            continue
        read = _READERS.get(name)
        yield from [_unknown(kind, name)] if read is None else read(value, kind, name)


def is_mark(name: str, value: object) -> bool:
    """Return whether a field is a mark, and no list or object of that name."""
    return name in MARKS and isinstance(value, str | int)


def _unknown(kind: str, name: str) -> Piece:
    """Return the name of a field that is not read: `text.annotations`, `video`."""
    text = name if kind in {"", name} else f"{kind}.{name}"
    return Piece(kind="unknown", text=text)


def _thoughts(value: object, _kind: str, _name: str) -> Iterator[Piece]:
    yield from _content(value, "thinking")


_NAMES = ("function_name", "name", "toolName", "function")
_ARGUMENTS = ("arguments", "input", "args", "action", "actions", "code", "queries")


def _call(call: Fields, kind: str = "tool_calls") -> Iterator[Piece]:
    """Read a call, in the layouts of OpenAI, Anthropic, Gemini, ATIF and LangChain."""
    outer = next(
        (n for n in ("function", "custom") if isinstance(call.get(n), dict)), ""
    )
    inner: Fields = call[outer] if outer else call
    short = "" if outer else CALL.sub("", kind).removeprefix("tool-")
    named = (key for key in _NAMES if isinstance(inner.get(key), str) and inner[key])
    name = next(named, "")
    key = next((key for key in _ARGUMENTS if key in inner), "")
    arguments = inner.get(key, "")
    if isinstance(arguments, str):
        with suppress(JsonError):
            arguments = parse_json(arguments)
    yield Piece(kind="call", text=inner.get(name, short), arguments=arguments)
    yield from _images_in(arguments, f"{kind}.{key}")
    read = [(call, {outer}), (inner, {name, key})] if outer else [(call, {name, key})]
    has_marks = kind != "function_call" or "type" in call
    for fields, used in read:
        for field_name, value in fields.items():
            is_known = has_marks and fields is call and is_mark(field_name, value)
            if is_known or field_name in used or is_empty(value):
                continue
            if kind == "image_generation_call" and field_name == "result":
                yield from _picture(value, kind, field_name)
            elif field_name in {"output", "outputs", "result", "results", "error"}:
                yield from _outputs(value, kind, field_name)
            else:
                yield _unknown(kind, field_name)


def _images_in(value: object, name: str) -> Iterator[Piece]:
    """Name the pictures that the JSON of a value does not have."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _images_in(part, f"{name}.{key}")
    elif isinstance(value, list):
        for part in value:
            yield from _images_in(part, name)
    elif is_image(value):
        yield _unknown("", name)


def _calls(value: object, _kind: str, name: str) -> Iterator[Piece]:
    if isinstance(value, str):  # tables have them as JSON
        with suppress(JsonError):
            value = parse_json(value)
    for call in value if isinstance(value, list) else [value]:
        yield from _call(call, name) if isinstance(call, dict) else [_unknown("", name)]


def _outputs(value: object, kind: str, name: str) -> Iterator[Piece]:
    """Read what a tool returned; a list of calls and messages is the model's output."""
    items = objects_in(value)
    if name == "output" and any(is_written(item) for item in items):
        yield from _content(value, "")
        return
    if isinstance(value, dict) and (value := _result(data := value)) is not data:
        yield from _images_in(data, kind or name)
    if isinstance(value, list) and all(isinstance(v, int | float) for v in value):
        value = as_json(value)
    for piece in _content(value, kind if OUTPUT.search(kind) else ""):
        yield replace(piece, is_output=True, is_error=name == "error")


def is_written(item: Fields) -> bool:
    """Return whether the model wrote an item of the Responses API."""
    kind = str(item.get("type", ""))
    return kind in {"message", "reasoning"} or CALL.search(kind) is not None


def _result(value: Fields) -> object:
    """Return a result that is content, else its one field of a usual name, or JSON."""
    if {"value"} <= value.keys() <= {"type", "value"}:  # of Vercel
        inner = value["value"]
        return inner if isinstance(inner, str | list) else as_json(inner)
    own = value.keys() & _OWN
    is_block = (
        _IS_BLOCK.search(str(value.get("type"))) and value.keys() & _READERS.keys()
    )
    is_content = "content" in value if not own else is_block and own == {"type"}
    if is_content or (is_block and any(p.kind == "picture" for p in _block(value, ""))):
        return value
    texts = [name for name in ("output", "result", "message", "text") if name in value]
    if len(value) == len(texts) == 1 and isinstance(value[texts[0]], str):
        return value[texts[0]]
    return as_json(value)


# The `type` of a result that is content. What a tool says of its own data is JSON.
_IS_BLOCK = re.compile(r"text|image|screenshot|content|_result$|_output$")


def _response(value: object, kind: str, name: str) -> Iterator[Piece]:
    """Read Gemini's response of a function: `response`, and `parts` with pictures."""
    for field_name, part in object_in(value).items():
        if field_name in {"name", "id"} or is_empty(part):
            continue
        if field_name in {"response", "parts"}:
            yield from _outputs(part, kind, name)
        else:
            yield _unknown(name, field_name)


def _tool_result(value: object, _kind: str, name: str) -> Iterator[Piece]:
    failed = object_in(value).get("status") == "error"
    for field_name, part in object_in(value).items():
        if field_name == "content":
            for piece in _content(part, ""):
                yield replace(piece, is_output=True, is_error=failed)
        elif not is_mark(field_name, part):
            yield _unknown(name, field_name)


def _json(value: object, _kind: str, name: str) -> Iterator[Piece]:
    yield Piece(kind="text", text=as_json(value))
    yield from _images_in(value, name)


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
# PNG, JPEG, GIF, WebP, TIFF
_SIGNED = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "SUkqA", "TU0AK")
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
        is_own = "type" not in fields and field_name in _OWN - {"detail"}
        if is_empty(part) or (is_mark(field_name, part) and not is_own):
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
    **dict.fromkeys((*SAID[: SAID.index("content")], "summary"), _thoughts),
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


def plain_json(value: object) -> object:
    """Return an array or a tensor as JSON wants it; other values as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def as_json(value: object) -> str:
    """Return the JSON of a value, arrays as lists."""
    return json.dumps(value, default=plain_json, ensure_ascii=False)

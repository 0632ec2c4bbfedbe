"""What a message says, in the layouts of all APIs: texts, thoughts, calls, pictures."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from rounddiag.batch.content import (
    CALL,
    OUTPUT,
    SAID,
    Fields,
    Piece,
    as_json,
    is_empty,
    is_mark,
    is_written,
    pieces_of,
    read_content,
)
from rounddiag.batch.sequence_difference import appends
from rounddiag.batch.turns import GENERATED
from rounddiag.text.json_text import object_in, objects_in

TOOL = "tool"  # the role of what a tool returned


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


def messages_in(value: object) -> list[dict[str, Any]]:
    """Return a conversation as messages: a list of them, or the text of one.

    Items of one response of the Responses API are one message.

    Examples
    --------
    >>> messages_in("Go.")
    [{'role': 'user', 'content': 'Go.'}]
    """
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return [*map(join_items, split_responses(objects_in(value)))]


def split_responses(messages: Iterable[Any]) -> list[list[Any]]:
    """Group messages so that items which the model wrote in one response are one group.

    These follow each other: a user's message or the result of a call ends them. Other
    messages are groups of their own.

    Examples
    --------
    >>> items = [{"type": "reasoning"}, {"type": "function_call"}, {"role": "user"}]
    >>> [*map(len, split_responses(items))]
    [2, 1]
    """
    groups: list[list[Any]] = []
    for message in messages:
        last = groups[-1][-1] if groups else {}
        pair = (last, message)
        if all(map(_is_of_model, pair)) and any(map(is_item, pair)):
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def join_items(items: Sequence[Any]) -> Any:  # noqa: ANN401 a message, as it was
    """Return a message of several items; a single one as it is."""
    return items[0] if len(items) == 1 else {"role": GENERATED, "output": items}


def is_item(message: object) -> bool:
    """Return whether something is an item of the Responses API, or the result of one.

    Such items have a type, and no role but that of a message.
    """
    kind = str(message.get("type", "")) if isinstance(message, Mapping) else ""
    return kind in _ITEMS or bool(CALL.search(kind) or OUTPUT.search(kind))


def _is_of_model(message: object) -> bool:
    if not isinstance(message, Mapping):
        return False
    if message.get("role"):
        return message["role"] == GENERATED
    return is_item(message) and is_written(message)


_ITEMS = {"message", "reasoning"}
_ROLES = {"model": GENERATED}  # Gemini's
# LangChain's types of messages, and their roles.
_TYPES = {"human": "user", "ai": GENERATED, "system": "system", "tool": TOOL}


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
    is_reply = any(map(is_written, items))
    kind = str(message.get("type", ""))
    is_bare = kind != "message" and is_item(message)
    said = {name: message[name] for name in SAID if name in message}
    others = {
        name: value
        for name, value in message.items()
        if not (is_bare or name in said or is_empty(value))
        and (name == "status" or not is_mark(name, value))
    }
    ends = [s for i in (message, *items) if isinstance(s := i.get("status"), str) and s]
    others |= {"status": ends[-1]} if ends else {}
    pieces = _once(read_content([message]) if is_bare else pieces_of(said, ""))
    given = message.get("role")
    role = GENERATED if is_reply or is_bare else _TYPES.get(kind, "user")
    role = given if isinstance(given, str) and given else role
    known = [piece for piece in pieces if piece.kind != "unknown"]
    is_result = known and all(piece.is_output for piece in known)
    if is_result and (is_bare or role == "user"):
        role = TOOL
    return Message(role=_ROLES.get(role, role), pieces=pieces, others=others)


def _unwrapped(message: Fields) -> Fields:
    """Return a message that LangChain has put into `data` or `kwargs`.

    One with words of its own stays: theirs are another field. What stands beside the
    wrapper is kept.
    """
    for name in ("data", "kwargs"):
        inner = object_in(message.get(name))
        if "content" not in inner or not all(map(is_empty, map(message.get, SAID))):
            continue
        path = message.get("id")
        parts = path if isinstance(path, list) else []
        kind = str(parts[-1] if parts else message.get("type"))
        kind = kind.removesuffix("Message").removesuffix("Chunk").lower()
        beside = {
            f"{field}_beside_{name}" if field in inner and field != "role" else field: v
            for field, v in message.items()
            if field not in {name, "type", "lc"} and not (parts and field == "id")
        }
        return {**beside, **inner, "type": kind.removesuffix("message")}
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
    return f"<tool_call>\n{as_json(call)}\n</tool_call>"


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

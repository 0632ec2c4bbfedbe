"""Trajectories in files of agents: turns, the calls that wrote them, and pictures.

=====================  ==============================================================
`Transcript`           what every format of trajectories reads: `AgentTurn` after turn
`text_of`              the text of a chat message: reasoning, content, tool calls
`stitch`               token ids of calls, by prefix; rewritten contexts are marked
`new_messages`         the same for calls of which only messages are known
`batch_of`             trajectories as a batch
=====================  ==============================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.turns import GENERATED
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.assembly.images import read_picture, with_pictures
from rounddiag.loaders.json_lines import object_in, objects_in
from rounddiag.loaders.json_text import JsonError, parse_json
from rounddiag.loaders.plain_columns import (
    collect_columns,
    record_columns,
    row_names,
    select_plain_columns,
)
from rounddiag.loaders.source import Source, inside, left_out_entry
from rounddiag.segmentation import find_rounds
from rounddiag.vision import Screenshot
from rounddiag.wording import pluralize

Message = Mapping[str, Any]
Tokens = dict[str, Array]


GIVEN = "assistant (given)"  # of a prompt: the model did not write it in this episode
_MOST_BYTES = 1 << 29  # of a picture: raw RGBA of the most pixels that Pillow decodes


@dataclass(kw_only=True)
class AgentTurn:
    """What one role said.

    Attributes
    ----------
    role: The rounds are the turns of `assistant`.
    images: Before the next round.
    action: The tools that it calls, as text.
    columns: Of its round.
    call: Token ids of the prompt and of what the model wrote, and their log-probs.
    tokens: The tokens that it adds to the sample, by the name of a Batch's field.
    """

    role: str
    text: str = ""
    images: list[Screenshot] = field(default_factory=list)
    action: str | None = None
    columns: dict[str, object] = field(default_factory=dict)
    call: tuple[Array, Array, Array | None] | None = None
    tokens: Tokens | None = None

    @property
    def is_round(self) -> bool:
        """Whether the model wrote it."""
        return self.role == GENERATED


@dataclass(kw_only=True)
class Transcript:
    """The turns of a trajectory, as an agent's file has them.

    Attributes
    ----------
    names: What the file calls it, with a rank: 0 for its own id, 1 for that of its
        session, which others can share, 2 for its file, 3 for its folder.
    columns: Of its sample; `rewards` and `uid` become rewards and groups.
    parts: Files, and ids, of its sub-agents.
    num_unread: Pictures in files that are missing, outside the folder, or too large.
    """

    file: Path
    names: dict[str, int] = field(default_factory=dict)
    turns: list[AgentTurn] = field(default_factory=list)
    columns: dict[str, object] = field(default_factory=dict)
    parts: set[str] = field(default_factory=set)
    num_unread: int = 0

    @property
    def rounds(self) -> list[AgentTurn]:
        """The turns that the model wrote."""
        return [turn for turn in self.turns if turn.is_round]

    def add(self, message: Message, role: str = "", **others: Any) -> AgentTurn:  # noqa: ANN401 fields of an AgentTurn
        """Add a chat message, which may have its pictures in files beside this one."""
        message = as_chat(message)
        images = []
        for part in _parts(message.get("content")):
            try:
                picture = _picture(part, self.file.parent)
            except LoadError:
                self.num_unread += 1
                continue
            images += [picture] if picture is not None else []
        turn = AgentTurn(
            role=role or str(message.get("role", "user")),
            text=text_of(message),
            images=images,
            action=describe_calls(message.get("tool_calls")),
            **others,
        )
        self.turns.append(turn)
        return turn

    def add_prompt(self, messages: Iterable[Message]) -> None:
        """Add messages that the model read and did not write in this trajectory."""
        for message in map(as_chat, messages):
            self.add(message, GIVEN if message.get("role") == GENERATED else "")

    def add_written(self, messages: Iterable[Message]) -> None:
        """Add messages of which those of the assistant were written by the model."""
        for message in messages:
            self.add(message)


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


def as_chat(message: Message) -> Message:
    """Return an item of OpenAI's Responses API, or a list of them, as a chat message.

    Examples
    --------
    >>> as_chat({"type": "function_call_output", "output": "ok"})
    {'role': 'tool', 'content': 'ok'}
    """
    kind, output = str(message.get("type")), message.get("output")
    if kind.endswith("_output"):
        return {"role": "tool", "content": output}
    items = objects_in(output)
    if kind.endswith("_call") or kind == "reasoning":
        items = [dict(message)]
    if not items:
        return message
    texts: list[object] = []
    calls: list[object] = []
    for item in items:
        content, name = item.get("content"), str(item.get("type"))
        if name.endswith("_call"):
            arguments = item.get("arguments", item.get("action", ""))
            named = item.get("name", name.removesuffix("_call"))
            calls.append({"name": named, "arguments": arguments})
        elif name == "reasoning":
            found = [*objects_in(item.get("summary")), *objects_in(content)]
            texts += [{"thinking": part.get("text")} for part in found]
        else:
            texts += (
                [{"text": content}] if isinstance(content, str) else _parts(content)
            )
    return {"role": GENERATED, "content": texts, "tool_calls": calls}


def _parts(content: object) -> list[dict[str, Any]]:
    return objects_in([content] if isinstance(content, dict) else content)


def text_of(message: Message) -> str:
    """Return the text of a message: its reasoning, its content and its tool calls.

    Reasoning and calls are written as Qwen's chat template does.

    Examples
    --------
    >>> call = {"function": {"name": "click", "arguments": '{"x": 1}'}}
    >>> print(text_of({"content": "ok", "tool_calls": [call]}))
    ok
    <tool_call>
    {"name": "click", "arguments": {"x": 1}}
    </tool_call>
    """
    content = message.get("content")
    pieces = [{"text": content}] if isinstance(content, str) else _parts(content)
    thoughts = [
        thought
        for one in (message, *pieces)
        for name in _THOUGHTS
        if isinstance(thought := one.get(name), str) and thought
    ]
    parts = ["\n".join(["<think>", *dict.fromkeys(thoughts), "</think>"])] * any(
        thoughts
    )
    if isinstance(failed := message.get("error"), dict):  # of a tool, in Inspect
        pieces = [*pieces, {"text": failed.get("message")}]
    texts = (piece.get("text") for piece in pieces)
    parts += [text for text in texts if isinstance(text, str) and text]
    for name, arguments in calls_in(message.get("tool_calls")):
        call = json.dumps(
            {"name": name, "arguments": arguments}, default=_plain, ensure_ascii=False
        )
        parts.append(f"<tool_call>\n{call}\n</tool_call>")
    return "\n".join(parts)


_THOUGHTS = ("reasoning_content", "reasoning", "thinking")


def _plain(value: Any) -> Any:  # noqa: ANN401 an array, as JSON wants it
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def calls_in(calls: object) -> Iterator[tuple[str, object]]:
    """Yield name and arguments of tool calls, in the layouts of OpenAI and of ATIF."""
    for call in objects_in(calls):
        inner = call.get("function")
        one = inner if isinstance(inner, dict) else call
        name = one.get("function_name", one.get("name", inner))
        arguments = one.get("arguments", "")
        if isinstance(arguments, str):
            with suppress(JsonError):
                arguments = parse_json(arguments)
        yield str(name), arguments


def describe_calls(calls: object) -> str | None:
    """Return the tools that a turn calls, with their arguments, as text.

    Examples
    --------
    >>> describe_calls([{"name": "click", "arguments": {"x": 1}}, {"name": "wait"}])
    'click(x=1); wait()'
    """
    texts = []
    for name, arguments in calls_in(calls):
        inner = arguments
        if isinstance(arguments, dict):
            pairs = (
                (k, _plain(v) if hasattr(v, "tolist") else v)
                for k, v in arguments.items()
            )
            inner = ", ".join(f"{k}={v!r}" for k, v in pairs)
        texts.append(f"{name}({inner})")
    return "; ".join(texts) or None


def _picture(part: Message, folder: Path) -> Screenshot | None:
    """Return the picture of a part of a message: in it, or in a file beside it."""
    source, url = part.get("source"), part.get("image_url", part.get("image"))
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(source, dict):
        url = source.get("path", source.get("data"))
        if source.get("type") == "base64" and isinstance(url, str):
            url = f"data:{source.get('media_type')};base64,{url}"
    if not isinstance(url, str) or "audio" in str(part.get("type")):
        return None
    if url.startswith("data:"):
        return read_picture(url)
    return picture_file(folder, url)


def picture_file(folder: Path, name: str) -> Screenshot | None:
    """Return a picture in a file; a LoadError if it is not in the folder.

    A trajectory must not make us read files of other folders.
    """
    file = inside(folder, name, most_bytes=_MOST_BYTES)
    return read_picture(Source.of_file(file).whole())


def plain_values(record: object, *used: str) -> dict[str, object]:
    """Return the texts, numbers and flags of an object, except some.

    Examples
    --------
    >>> plain_values({"reward": 1.0, "done": True, "info": {}, "note": None}, "reward")
    {'done': True}
    """
    return {
        name: value
        for name, value in object_in(record).items()
        if isinstance(value, str | int | float) and name not in used
    }


def new_messages(
    known: Sequence[Message], prompt: Sequence[Message]
) -> tuple[Sequence[Message], bool]:
    """Return the messages of a call's prompt that are new, and if it was rewritten.

    A prompt continues those before if it starts with them. One that does not, because
    older turns were dropped or summarised, is new after the last known message in it.

    Examples
    --------
    >>> a, b, c = ({"content": name} for name in "abc")
    >>> new_messages([a, b], [a, b, c])
    ([{'content': 'c'}], False)
    >>> new_messages([a, b], [b, c])
    ([{'content': 'c'}], True)
    """
    start, keys = [*map(_key, known)], [*map(_key, prompt)]
    if keys[: len(start)] == start:
        return prompt[len(start) :], False
    last = {key: index for index, key in enumerate(keys)}
    at = last.get(start[-1], -1) if start else -1
    if at < 0:
        at = max((last.get(key, -1) for key in start), default=-1)
    return prompt[at + 1 :], True


def _key(message: Message) -> str:
    """Return what a message says; its other fields depend on the call."""
    said = [message.get(name) for name in ("role", "content", "tool_calls")]
    return json.dumps(said, default=_plain, sort_keys=True)


def stitch(turns: Iterable[AgentTurn]) -> None:
    """Give each round the tokens that its call added to those before.

    These are the prompt's after what the model read and wrote before, then what it
    wrote. Where the prompt does not continue that, all of it is an observation, and
    the round column `is_context_rewritten` is True.
    """
    known = np.empty(0, dtype=np.int64)
    for turn in turns:
        if turn.call is None:
            continue
        prompt, written, log_probs = turn.call
        size = len(known)
        is_rewritten = not np.array_equal(prompt[:size], known)
        added = prompt if is_rewritten else prompt[size:]
        mask = np.repeat([0, 1], [len(added), len(written)]).astype(np.int8)
        scores = np.full(len(mask), np.nan, dtype=np.float32)
        scores[: len(added)] = 0
        if log_probs is not None and len(log_probs) == len(written):
            scores[len(added) :] = log_probs
        turn.tokens = {
            "response_ids": np.concatenate([added, written]).astype(np.int64),
            "response_mask": mask,
            "rollout_log_probs": scores,
        }
        if size:
            turn.columns["is_context_rewritten"] = is_rewritten
        known = np.concatenate([prompt, written])


def call_of(
    record: Message, prompt: str, written: str, log_probs: str
) -> tuple[Array, Array, Array | None] | None:
    """Return the token ids and log-probs of a call, if a record has them."""
    rows = [record.get(name) for name in (prompt, written, log_probs)]
    rows = [
        row if isinstance(row, np.ndarray) and row.ndim == 1 else None for row in rows
    ]
    if (
        rows[0] is None
        or rows[1] is None
        or not {rows[0].dtype.kind, rows[1].dtype.kind} <= {*"iu"}
    ):
        return None
    return rows[0], rows[1], rows[2]


def batch_of(
    trajectories: Iterable[Transcript], source: Source, **meta: object
) -> Batch:
    """Return trajectories as a batch: with token ids if all rounds have them."""
    samples = [*trajectories]
    rounds = [turn for one in samples for turn in one.rounds]
    if not rounds:
        raise source.error(
            expected="trajectories in which a model wrote something",
            found=f"{len(samples)} without an answer",
            advice="Pass the file that is written after the episodes have run.",
        )
    num_with_ids = sum(turn.tokens is not None for turn in rounds)
    has_ids = num_with_ids == len(rounds)
    columns, left_out = collect_columns([one.columns for one in samples])
    plain = select_plain_columns(columns, len(samples))
    lost = [name for name in columns if name not in plain]
    rewards, groups = plain.pop("rewards", None), plain.pop("uid", None)
    names = [min(one.names, key=one.names.__getitem__, default="") for one in samples]
    facts = {
        "source": str(source.path),
        "mask_source": "the turns of the model",
        **meta,
        **left_out_entry([*left_out, *lost]),
        **_notes(samples, num_with_ids, len(rounds)),
    }
    names_of_groups = None if groups is None else row_names(groups)
    if names_of_groups is None and (names_of_groups := _prompt_groups(samples)):
        facts["group_source"] = "samples whose prompts have the same text"
    fields: dict[str, Any] = {
        "rewards": None if rewards is None else [*map(_number, rewards)],
        "step": _only_step(plain),
        "group_ids": names_of_groups,
        "sample_ids": tuple(names) if len({*names} - {""}) == len(names) else None,
        "sample_columns": plain,
        "meta": facts,
    }
    try:
        return _with_ids(samples, fields) if has_ids else _with_text(samples, fields)
    except BatchError as error:
        msg = f"{source.path}: {error}"
        raise LoadError(msg) from error


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _prompt_groups(samples: Sequence[Transcript]) -> tuple[str, ...] | None:
    """Return a group for each prompt, if all have a text."""
    prompts = [
        [*takewhile(lambda turn: not turn.is_round, one.turns)] for one in samples
    ]
    keys = [
        "".join(f"{turn.role}\0{turn.text}\0" for turn in turns) for turns in prompts
    ]
    if not all(any(turn.text for turn in turns) for turns in prompts):
        return None
    return tuple(
        blake2b(key.encode(errors="replace"), digest_size=8).hexdigest() for key in keys
    )


def _only_step(columns: dict[str, Array]) -> int | None:
    """Take the trainer's step out of the columns, if it is one."""
    steps = {*columns["step"].tolist()} if "step" in columns else {None}
    if len(steps) > 1 or type(step := steps.pop()) is not int:
        return None
    del columns["step"]
    return step


def _notes(
    samples: Sequence[Transcript], num_with_ids: int, num_rounds: int
) -> dict[str, object]:
    """Return entries of `meta` on ids and pictures that are left out."""
    notes: dict[str, object] = {}
    if 0 < num_with_ids < num_rounds:
        found = f"{num_with_ids} of {pluralize(num_rounds, 'round')} have them"
        notes["token_ids"] = f"left out: {found}"
    if num_unread := sum(one.num_unread for one in samples):
        missing = f"{pluralize(num_unread, 'picture')} missing or outside the folder"
        notes["screenshots"] = [missing]
    return notes


def _with_text(samples: Sequence[Transcript], fields: dict[str, Any]) -> Batch:
    rounds = [
        [index for index, turn in enumerate(one.turns) if turn.is_round]
        for one in samples
    ]
    pictures = [_shots(*pair) for pair in zip(samples, rounds, strict=True)]
    turns = [
        [(turn.role, turn.text, next(shots)) for turn in one.turns]
        for one, shots in zip(samples, map(iter, pictures), strict=True)
    ]
    return Batch.from_turns(
        turns, round_columns=_round_columns(samples, rounds), **fields
    )


def _with_ids(samples: Sequence[Transcript], fields: dict[str, Any]) -> Batch:
    rows = [_token_rows(one) for one in samples]
    names = dict.fromkeys(name for row in rows for name in row)
    none = np.empty(0, dtype=np.int64)
    tokens = {name: [row.get(name, none) for row in rows] for name in names}
    turn_of_token = tokens.pop("round_ids")
    marks = zip(tokens["rollout_log_probs"], tokens["response_mask"], strict=True)
    if all(np.isnan(row[mask != 0]).all() for row, mask in marks):
        del tokens["rollout_log_probs"]  # ids alone
    turns = [
        [(turn.role, turn.text, len(turn.images)) for turn in one.turns]
        for one in samples
    ]
    batch = Batch.from_rows(round_ids=turn_of_token, turns=turns, **tokens, **fields)
    starts = np.concatenate(turn_of_token)[batch.rounds.start.numpy()]
    ends = np.searchsorted(batch.rounds.sample.numpy(), range(1, len(batch)))
    parts = [row.tolist() for row in np.split(starts, ends)]
    batch = replace(batch, round_columns=_round_columns(samples, parts))
    if len(batch.rounds) == len(find_rounds(batch.response_mask, batch.offsets)):
        batch = replace(batch, round_ids=None)  # the mask alone separates the rounds
    shots = [[*chain(*_shots(*pair))] for pair in zip(samples, parts, strict=True)]
    return with_pictures(batch, shots)


def _token_rows(one: Transcript) -> dict[str, Array]:
    """Return the tokens of a sample; its prompt ends before the first round."""
    parts = [
        (index, turn.tokens) for index, turn in enumerate(one.turns) if turn.tokens
    ]
    if not parts:  # it ended before the first call
        return {}
    whole = {
        name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]
    }
    sizes = [len(part["response_mask"]) for _, part in parts]
    whole["round_ids"] = np.repeat([index for index, _ in parts], sizes)
    written = np.flatnonzero(whole["response_mask"])
    start = int(written[0]) if len(written) else sum(sizes)
    prompt = whole["response_ids"][:start]
    return {"prompt_ids": prompt, **{k: row[start:] for k, row in whole.items()}}


def _shots(one: Transcript, rounds: Sequence[int]) -> list[list[Screenshot]]:
    """Return the pictures of each turn, with the first round after them."""
    after = np.searchsorted(rounds, range(len(one.turns))).tolist()
    return [
        [
            replace(shot, round=index if index < len(rounds) else None)
            for shot in turn.images
        ]
        for turn, index in zip(one.turns, after, strict=True)
    ]


def _round_columns(
    samples: Sequence[Transcript], rounds: Sequence[Sequence[int]]
) -> dict[str, Array]:
    """Return the columns of the rounds, which are these turns of each sample."""
    rows = []
    for sample, places in enumerate(rounds):
        for index, at in enumerate(places):
            turn = samples[sample].turns[at]
            action = {} if turn.action is None else {"action": turn.action}
            rows.append((sample, index, {**turn.columns, **action}))
    columns, _ = record_columns(rows)
    return columns if any(record for _, _, record in rows) else {}

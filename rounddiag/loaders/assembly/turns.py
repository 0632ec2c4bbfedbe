"""Trajectories in files of agents: turns, the calls that wrote them, and pictures.

=====================  ==============================================================
`Transcript`           what every format of trajectories reads: `AgentTurn` after turn
`stitch`               token ids of calls, by prefix; rewritten contexts are marked
`new_messages`         the same for calls of which only messages are known
`batch_of`             trajectories as a batch
=====================  ==============================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch import Batch
from rounddiag.batch.left_out import left_out_entry
from rounddiag.batch.picture_places import with_pictures
from rounddiag.batch.sequence_difference import appends
from rounddiag.batch.turns import GENERATED
from rounddiag.errors import BatchError, LoadError
from rounddiag.loaders.assembly.images import read_picture
from rounddiag.loaders.json_lines import object_in
from rounddiag.loaders.messages import (
    SAID,
    Fields,
    describe_calls,
    is_empty,
    plain_json,
    read_message,
    write_text,
)
from rounddiag.loaders.plain_columns import (
    collect_columns,
    record_columns,
    row_names,
    select_plain_columns,
    sum_rewards,
    with_sample_advantages,
)
from rounddiag.loaders.source import Source, inside
from rounddiag.schema import ERROR
from rounddiag.segmentation import find_rounds
from rounddiag.vision import Screenshot
from rounddiag.wording import pluralize

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
    left_out: Names of fields that are neither shown nor columns.
    num_unread_blocks: How often the content of messages has such a field.
    """

    file: Path
    names: dict[str, int] = field(default_factory=dict)
    turns: list[AgentTurn] = field(default_factory=list)
    columns: dict[str, object] = field(default_factory=dict)
    parts: set[str] = field(default_factory=set)
    num_unread: int = 0
    left_out: set[str] = field(default_factory=set)
    num_unread_blocks: int = 0

    @property
    def rounds(self) -> list[AgentTurn]:
        """The turns that the model wrote."""
        return [turn for turn in self.turns if turn.is_round]

    def add(self, message: Fields, role: str = "", **others: Any) -> AgentTurn:  # noqa: ANN401 fields of an AgentTurn
        """Add a message, which may have its pictures in files beside this one.

        The plain ones of its other fields become columns, if it is a round.
        """
        said = read_message(message)
        unread = [f"content.{p.text}" for p in said.pieces if p.kind == "unknown"]
        self.num_unread_blocks += len(unread)
        self.left_out.update(unread)
        turn = AgentTurn(
            role=role or said.role,
            text=write_text(said),
            action=describe_calls(said.calls),
            **others,
        )
        shots = (p.picture for p in said.pieces if p.kind == "picture")
        turn.images += self.pictures(*shots)
        turn.columns = {**self.plain(said.others, of="messages"), **turn.columns}
        if not turn.is_round:
            known = {name for name, v in turn.columns.items() if not is_empty(v)}
            self.left_out |= {f"messages.{name}" for name in known}
            turn.columns = {}
        failed = [piece.text for piece in said.pieces if piece.is_error]
        if failed and (last := self.last_round):
            before = [last.columns[ERROR.name]] if ERROR.name in last.columns else []
            last.columns[ERROR.name] = "\n".join(map(str, [*before, *failed]))
        self.turns.append(turn)
        return turn

    @property
    def last_round(self) -> AgentTurn | None:
        """The last turn that the model wrote."""
        return next((turn for turn in reversed(self.turns) if turn.is_round), None)

    def pictures(self, *values: object) -> list[Screenshot]:
        """Read pictures: data URLs, bytes, images, or files beside this one."""
        shots = []
        for value in values:
            shot = None
            with suppress(LoadError):
                shot = read_picture(value)
                if shot is None and isinstance(value, str):
                    shot = picture_file(self.file.parent, value)
            shots += [] if shot is None else [shot]
            self.num_unread += shot is None
        return shots

    def plain(self, record: object, *used: str, of: str = "") -> dict[str, object]:
        """Return the texts, numbers and flags of an object, except some, as columns.

        Its other fields are left out, and named.
        """
        others = {
            f"{of}.{name}" if of else str(name)
            for name, value in object_in(record).items()
            if name not in used
            and not isinstance(value, str | int | float)
            and not is_empty(value)
        }
        self.left_out |= others
        return plain_values(record, *used)

    def add_prompt(self, messages: Iterable[Fields]) -> None:
        """Add messages that the model read and did not write in this trajectory."""
        for message in messages:
            is_reply = read_message(message).role == GENERATED
            self.add(message, GIVEN if is_reply else "")

    def add_written(self, messages: Iterable[Fields]) -> None:
        """Add messages of which those of the assistant were written by the model."""
        for message in messages:
            self.add(message)


def picture_file(folder: Path, name: str) -> Screenshot | None:
    """Return a picture in a file; a LoadError if it is not in the folder.

    A trajectory must not make us read files of other folders. One that was moved with
    its pictures names them where they were: the end of that path is looked for.
    """
    try:
        file = inside(folder, name, most_bytes=_MOST_BYTES)
    except LoadError:
        parts = Path(name).parts
        if len(parts) < 2:  # noqa: PLR2004 a name alone
            raise
        return picture_file(folder, str(Path(*parts[max(1, len(parts) - 2) :])))
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
    known: Sequence[Fields], prompt: Sequence[Fields]
) -> tuple[Sequence[Fields], bool]:
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
    if appends(start, keys):
        return prompt[len(start) :], False
    last = {key: index for index, key in enumerate(keys)}
    at = last.get(start[-1], -1) if start else -1
    if at < 0:
        at = max((last.get(key, -1) for key in start), default=-1)
    return prompt[at + 1 :], True


def _key(message: Fields) -> str:
    """Return what a message says; its other fields depend on the call."""
    said = [message.get(name) for name in ("role", *SAID)]
    return json.dumps(said, default=plain_json, sort_keys=True)


def stitch(turns: Iterable[AgentTurn]) -> None:
    """Give each round the tokens that its call added to those before.

    These are the prompt's after what the model read and wrote before, then what it
    wrote. Where the prompt does not continue that, all of it is an observation, and
    the round column `is_rewritten` is True.
    """
    known = np.empty(0, dtype=np.int64)
    for turn in turns:
        if turn.call is None:
            continue
        prompt, written, log_probs = turn.call
        size = len(known)
        is_rewritten = not appends(known, prompt)
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
            turn.columns["is_rewritten"] = is_rewritten
        known = np.concatenate([prompt, written])


def call_of(
    record: Fields, prompt: str, written: str, log_probs: str
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
        failed = [e for one in samples if (e := one.columns.get(ERROR.name))]
        raise source.error(
            expected="trajectories in which a model wrote something",
            found=f"{len(samples)} without an answer"
            + "".join(f", {error!s:.80}" for error in failed[:1]),
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
        **left_out_entry({*left_out, *lost}.union(*(one.left_out for one in samples))),
        **_notes(samples, num_with_ids, len(rounds)),
    }
    if rewards is None:
        rewards, note = sum_rewards(plain)
        facts |= note
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
        build = _with_ids if has_ids else _with_text
        return with_sample_advantages(build(samples, fields))
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
    if num_blocks := sum(one.num_unread_blocks for one in samples):
        notes["num_unread_blocks"] = num_blocks
    if num_silent := sum(not one.rounds for one in samples):
        notes["answers"] = (
            f"{num_silent} of {pluralize(len(samples), 'sample')} have none"
        )
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

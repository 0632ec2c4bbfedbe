"""Trajectories in files of agents: turns, the calls that wrote them, and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.batch.content import Fields, as_json, is_empty, read_content
from rounddiag.batch.messages import describe_calls, new_in, read_message, write_text
from rounddiag.batch.turns import GENERATED
from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.images import read_picture
from rounddiag.loaders.plain_columns import replaced_names
from rounddiag.loaders.source import Source, inside
from rounddiag.schema import ERROR
from rounddiag.text.json_text import object_in
from rounddiag.vision import Screenshot

Tokens = dict[str, Array]


GIVEN = "assistant (given)"  # of a prompt: the model did not write it in this episode
_EMPTY = "content.image"  # a block of a picture, as it is named where it has none
_TAG = "<image>"  # stands for a picture in texts of data sets
_MOST_BYTES = 1 << 29  # of a picture: raw RGBA of the most pixels that Pillow decodes


@dataclass(kw_only=True)
class AgentTurn:
    """What one role said.

    Attributes
    ----------
    role: The rounds are the turns of `assistant`.
    images: Before the next round.
    num_empty: Blocks of a picture without one, which stands elsewhere in the file.
    action: The tools that it calls, as text.
    columns: Of its round.
    call: Token ids of the prompt and of what the model wrote, and their log-probs.
    tokens: The tokens that it adds to the sample, by the name of a Batch's field.
    """

    role: str
    text: str = ""
    images: list[Screenshot] = field(default_factory=list)
    num_empty: int = 0
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
            num_empty=unread.count(_EMPTY),
            **others,
        )
        shots = (p.picture for p in said.pieces if p.kind == "picture")
        turn.images += self.pictures(*shots)
        own = self.plain(said.others, of="messages")
        columns = self.merge(messages=own, round=turn.columns)
        if not turn.is_round:
            lost = {name for name, value in columns.items() if not is_empty(value)}
            self.left_out |= {f"messages.{name}" for name in lost}
        turn.columns = columns if turn.is_round else {}
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

    def add_pictures(self, values: object) -> None:
        """Add the pictures of a row: in place of empty blocks, or of `<image>`.

        Where their number differs, all stand in front.
        """
        pieces = read_content({"images": values})
        named = [p.picture for p in pieces if p.kind == "picture"]
        others = [p for p in pieces if p.kind != "picture"]
        self.left_out.update(
            p.text if p.kind == "unknown" else "images" for p in others
        )
        empty = [turn for turn in self.turns for _ in range(turn.num_empty)]
        tags = [t for t in self.turns for _ in range(t.text.count(_TAG))]
        if named and len(empty) == len(named):
            self.num_unread_blocks -= len(empty)
            self.left_out.discard(_EMPTY)
        elif len(tags) == len(named):
            empty = tags
        else:
            empty = [turn for turn in self.turns if turn.role != "system"][:1]
            empty *= len(named)
        for turn, picture in zip(empty, named, strict=False):
            turn.images += self.pictures(picture)

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

    def named(self, record: object, *used: str, of: str) -> dict[str, object]:
        """Return the same columns under names that begin with the object's."""
        return {f"{of}.{n}": v for n, v in self.plain(record, *used, of=of).items()}

    def merge(self, **parts: Mapping[str, object]) -> dict[str, object]:
        """Join columns, of which the last of each name is taken.

        Another value of the name is left out, and named after its part.
        """
        merged: dict[str, object] = {}
        origins: dict[str, str] = {}
        for origin, columns in parts.items():
            said = {n: value for n, value in merged.items() if not is_empty(value)}
            replaced = replaced_names(said, columns)
            self.left_out |= {f"{origins[name]}.{name}" for name in replaced}
            merged |= columns
            origins |= dict.fromkeys(columns, origin)
        return merged

    def described(
        self, record: Fields, name: str, *keys: str, column: str = "", of: str = ""
    ) -> dict[str, object]:
        """Return a field as a column: plain, or a text of some keys of its object."""
        value, place = record.get(name), f"{of}.{name}".removeprefix(".")
        if isinstance(value, dict):
            plain = plain_values(value)
            used = [key for key in keys if key in plain]
            self.leave_out(value, *used, of=place)
            value = ": ".join(str(plain[key]) for key in used)
        (text,) = (*self.plain({name: value}, of=of).values(), "")[:1]
        return {} if text == "" else {column or name: text}

    def leave_out(self, record: object, *used: str, of: str) -> None:
        """Leave out and name all fields of an object, except some."""
        self.left_out.update(self.named(record, *used, of=of))

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
) -> tuple[list[Fields], bool]:
    """Return the messages of a call's prompt that are new, and if it was rewritten.

    Examples
    --------
    >>> a, b, c = ({"content": name} for name in "abc")
    >>> new_messages([a, b], [b, c])
    ([{'content': 'c'}], True)
    """
    new, is_rewritten = new_in([*map(said_key, known)], [*map(said_key, prompt)])
    return [prompt[index] for index in new], is_rewritten


def said_key(message: Fields) -> bytes:
    """Return a hash of what a message says; its other fields depend on the call.

    Its thoughts are left out of later prompts.
    """
    said = read_message(message)
    pieces = [
        (piece.kind, piece.text, piece.arguments, piece.picture, piece.is_output)
        for piece in said.pieces
        if piece.kind != "thought"
    ]
    text = as_json([said.role, pieces])
    return blake2b(text.encode(errors="replace"), digest_size=16).digest()


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
    is_scored = rows[2] is not None and len(rows[2]) == len(rows[1])
    return rows[0], rows[1], rows[2] if is_scored else None

"""The columns of a table with one row per step: ids, texts, messages, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
import torch

from rounddiag._typing import Array
from rounddiag.batch.content import SAID, is_empty
from rounddiag.batch.messages import (
    Message,
    describe_calls,
    is_item,
    join_items,
    read_message,
    split_responses,
    write_text,
)
from rounddiag.batch.step_order import sort_keys
from rounddiag.batch.turns import GENERATED
from rounddiag.columns.column import is_real, is_unknown, python_value
from rounddiag.errors import BatchError
from rounddiag.text.json_text import JsonError, plain_tree
from rounddiag.vision import Screenshot
from rounddiag.vision.plain_pictures import picture_of
from rounddiag.wording import format_names

TRAJECTORY, STEP_NUMBER, RESPONSE, _MESSAGES = (
    "trajectory",
    "step",
    "response",
    "messages",
)
_CONTEXTS = ("prompt_ids", _MESSAGES, "prompt")  # the first that is there is used
LOG_PROBS = ("rollout_log_probs", "old_log_probs")
_PICTURES = ("screenshots", "screenshot")
REWARD = "reward"
SAMPLED = "rollout_prompt_ids"  # what the sampler read, where it differs
_PIXELS = 3  # dimensions of an array that is one picture


class Said(NamedTuple):
    """What a message says.

    Attributes
    ----------
    action: The tools that it calls, as text.
    shots, digests: Its pictures, and their hashes.
    unread: Names of what is in it and is neither text nor a picture that can be read.
    """

    role: str
    text: str
    action: str | None = None
    shots: tuple[Screenshot, ...] = ()
    digests: tuple[bytes, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What is compared to find out whether a context goes on."""
        return self.role, self.text


@dataclass(frozen=True, kw_only=True)
class StepTable:
    """The columns of a table with one row per step.

    Attributes
    ----------
    columns: The values of each column.
    num_rows: How many each has.
    context: The column with the contexts.
    """

    columns: Mapping[str, Sequence[Any]]
    num_rows: int
    context: str
    _read: dict[tuple[int, ...], Said] = field(default_factory=dict)

    @classmethod
    def of(cls, steps: Any) -> StepTable:  # noqa: ANN401 whatever is passed
        """Read a DataFrame or a list of dicts; a BatchError if columns are missing."""
        columns = _columns_of(steps)
        num_rows = len(next(iter(columns.values()), ()))
        if not num_rows:
            raise BatchError.build(
                key="steps",
                expected="at least one row, one per step",
                found="no rows",
                advice="Pass the steps of at least one trajectory.",
            )
        present = [name for name in _CONTEXTS if name in columns]
        needed = [name for name in (TRAJECTORY, STEP_NUMBER) if name not in columns]
        needed += [] if present else ["`, `".join(_CONTEXTS[:2]) + "` or `prompt"]
        needed += [] if RESPONSE in columns else [RESPONSE]
        if needed:
            raise BatchError.build(
                key="steps",
                expected=f"the column `{needed[0]}`",
                found=format_names(columns),
                advice="Add it, or rename the column that holds it.",
            )
        table = cls(columns=columns, num_rows=num_rows, context=present[0])
        for name in (TRAJECTORY, STEP_NUMBER, table.context, RESPONSE):
            table.require_values(name)
        return table

    def require_values(self, name: str) -> None:
        """Raise a BatchError for the first row that has no value in a column."""
        for row, value in enumerate(self.columns[name]):
            if _is_missing(value):
                raise BatchError.build(
                    key=name,
                    expected="a value in each row",
                    found=f"{value!r} in row {row}",
                    advice="Fill it in, or leave this row out.",
                )

    def ordered(self) -> dict[Any, list[int]]:
        """Return the rows of each trajectory in the order of their steps."""
        keys = sort_keys(_as_array(self.columns[STEP_NUMBER]))
        if keys is None:
            raise BatchError.build(
                key=STEP_NUMBER,
                expected="numbers, or texts, in all rows",
                found=format_names(map(repr, self.columns[STEP_NUMBER])),
                advice="Number the steps of each trajectory from 0.",
            )
        groups: dict[str, list[int]] = {}
        for row, name in enumerate(self.columns[TRAJECTORY]):
            groups.setdefault(str(name), []).append(row)
        for name, rows in groups.items():
            rows.sort(key=keys.__getitem__)
            for first, second in pairwise(rows):
                if keys[first] == keys[second]:
                    raise BatchError.build(
                        key=STEP_NUMBER,
                        expected="one row per step of each trajectory",
                        found=f"rows {first} and {second}, both step"
                        f" {self.columns[STEP_NUMBER][first]!s:.40} of trajectory"
                        f" {name!r:.80}",
                        advice="Remove one of them, or give each trajectory a name of"
                        " its own.",
                    )
        return groups

    def ids(self, name: str) -> list[torch.Tensor]:
        """Return a column of token ids."""
        return [self.row_of_ids(name, row) for row in range(self.num_rows)]

    def row_of_ids(self, name: str, row: int) -> torch.Tensor:
        """Return the token ids in a row of a column."""
        return self._numbers(name, row, "iu").to(torch.int64)

    def log_probs(self, name: str) -> list[torch.Tensor]:
        """Return a column of log-probs; NaN in rows that have none."""
        sizes = map(len, self.columns[RESPONSE])
        return [
            torch.full((size,), torch.nan)
            if _is_missing(self.columns[name][row])
            else self._numbers(name, row, "iuf").to(torch.float32)
            for row, size in enumerate(sizes)
        ]

    def _numbers(self, name: str, row: int, kinds: str) -> torch.Tensor:
        value = self.columns[name][row]
        listed = value.tolist() if hasattr(value, "tolist") else value
        is_flat = isinstance(listed, list | tuple) and all(map(np.isscalar, listed))
        array = np.array(listed if is_flat else None)
        if array.ndim != 1 or (len(array) and array.dtype.kind not in kinds):
            raise BatchError.build(
                key=name,
                expected="a list of token ids" if "f" not in kinds else "log-probs",
                found=f"{value!r:.60} in row {row}",
                advice="With `prompt_ids`, `response` has token ids as well, and a"
                " log-prob for each. For texts, pass `messages` or `prompt` instead.",
            )
        return torch.from_numpy(array)

    def _text(self, name: str, row: int) -> str:
        value = self.columns[name][row]
        if isinstance(value, str):
            return value
        raise BatchError.build(
            key=name,
            expected="a text",
            found=f"a {type(value).__name__} in row {row}",
            advice="Token ids need the context as token ids too: the column"
            " `prompt_ids`.",
        )

    def pictures(self) -> list[list[Screenshot]]:
        """Return the pictures of each row in the columns that hold pictures."""
        return [self._pictures(row) for row in range(self.num_rows)]

    def _pictures(self, row: int) -> list[Screenshot]:
        shots: list[Screenshot] = []
        for name in _PICTURES:
            cell = self.columns.get(name, [None] * self.num_rows)[row]
            is_stack = isinstance(cell, np.ndarray) and cell.ndim != _PIXELS
            values = cell if is_stack or isinstance(cell, list | tuple) else [cell]
            shots += [_picture(v, row) for v in values if not _is_missing(v)]
        return shots

    def contexts(self) -> list[list[Said]]:
        """Return what each message of each row's context says."""
        if self.context == "prompt":
            rows = range(self.num_rows)
            return [[Said("user", self._text("prompt", row))] for row in rows]
        return [*map(self.messages, range(self.num_rows))]

    def messages(self, row: int) -> list[Said]:
        """Return what the messages of a row say; none without any."""
        messages = self.columns[_MESSAGES][row] if _MESSAGES in self.columns else []
        if not isinstance(messages, list | tuple | np.ndarray):
            raise _message_error(messages, row)
        return [self._said(items, row) for items in split_responses(messages)]

    def _said(self, items: Sequence[object], row: int) -> Said:
        """Return what a message says, read once where rows share it."""
        key = tuple(map(id, items))
        if key not in self._read:
            plain = [_as_lists(item, _MESSAGES, row) for item in items]
            self._read[key] = _said(join_items(plain), row)
        return self._read[key]

    def responses(self) -> list[Said]:
        """Return what the model wrote in each row: a text, content, or a message."""
        said = []
        for row, response in enumerate(self.columns[RESPONSE]):
            value = _as_lists(response, RESPONSE, row)
            is_content = isinstance(value, list) and all(
                isinstance(part, str | Mapping) for part in value
            )
            message = {"content": value} if is_content else value
            if isinstance(message, Mapping):
                said.append(_said({**message, "role": GENERATED}, row))
            else:
                said.append(Said(GENERATED, self._text(RESPONSE, row)))
        return said

    def others(self) -> tuple[dict[str, Array], set[str]]:
        """Return the columns that are no field of a batch, and names of the rest.

        Those are of values that no file of ours holds, such as pictures.
        """
        used = {self.context, RESPONSE, REWARD, *_PICTURES}
        used |= {*LOG_PROBS, SAMPLED} if self.context == "prompt_ids" else set()
        own = {name: v for name, v in self.columns.items() if name not in used}
        stored = {name: _stored(values) for name, values in own.items()}
        columns = {k: _as_array(v) for k, v in stored.items() if v is not None}
        return columns, own.keys() - columns.keys()

    def rewards(self) -> list[float] | None:
        """Return the reward of each row, NaN where it has none; None without any."""
        if REWARD not in self.columns:
            return None
        rewards = []
        for row, value in enumerate(map(python_value, self.columns[REWARD])):
            if not (is_unknown(value) or is_real(value)):
                raise BatchError.build(
                    key=REWARD,
                    expected="a number in each row, or none",
                    found=f"{value!r:.60} in row {row}",
                    advice="Pass what is no number as a column of another name.",
                )
            rewards.append(np.nan if is_unknown(value) else float(value))
        return rewards


def _columns_of(steps: Any) -> dict[str, Sequence[Any]]:  # noqa: ANN401
    if hasattr(steps, "columns") and hasattr(steps, "iloc"):  # pandas is not imported
        names = [*steps.columns]
        return {str(k): steps.iloc[:, i].tolist() for i, k in enumerate(names)}
    rows = steps if isinstance(steps, list | tuple) else None
    if rows is None or not all(isinstance(row, Mapping) for row in rows):
        raise BatchError.build(
            key="steps",
            expected="a DataFrame, or a list of dicts, with one row per step",
            found=f"a {type(steps).__name__}",
            advice="Pass `pandas.DataFrame(rows)`.",
        )
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {str(name): [row.get(name) for row in rows] for name in names}


def _is_missing(value: object) -> bool:
    return is_unknown(python_value(value))


def _stored(values: Sequence[Any]) -> list[Any] | None:
    """Return values as a column has them; None if no file of ours holds one of them."""
    with suppress(JsonError, TypeError):
        return [plain_tree(value, _stored_scalar) for value in values]
    return None


def _stored_scalar(value: object) -> object:
    plain = python_value(value)
    if isinstance(
        plain, str | int | float | date | timedelta | np.ndarray | torch.Tensor
    ):
        return plain
    if is_unknown(plain):
        return None
    raise TypeError


def _as_array(values: Sequence[Any]) -> Array:
    """Return an array: of numbers, where missing ones are NaN, else of objects."""
    items = [None if _is_missing(value) else python_value(value) for value in values]
    kinds = {*map(type, items)}
    if kinds in ({bool}, {int}, {float}, {int, float}):
        array = np.array(items)
        if array.tolist() == items:  # no digit is lost
            return array
    if kinds in ({int, NoneType}, {float, NoneType}, {int, float, NoneType}):
        array = np.array([np.nan if item is None else item for item in items], float)
        if [None if item != item else item for item in array.tolist()] == items:  # noqa: PLR0124 NaN
            return array
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _as_lists(value: object, name: str, row: int) -> Any:  # noqa: ANN401 a message
    """Return a value whose sequences are lists: tables may have them as arrays."""
    try:
        return plain_tree(value)
    except JsonError as error:
        raise BatchError.build(
            key=name,
            expected="texts, lists and objects, as JSON has them",
            found=f"{error} in row {row}",
            advice="Convert it to what `json.dumps` takes.",
        ) from error


def _said(message: Any, row: int) -> Said:  # noqa: ANN401 whatever a cell holds
    has_role = isinstance(message, Mapping) and isinstance(message.get("role"), str)
    if not is_item(message) and not (has_role and {*SAID} & message.keys()):
        raise _message_error(message, row)
    read = read_message(message)
    shots, unread = _pictures_in(read)
    unread += [f"messages.{name}" for name, v in read.others.items() if not is_empty(v)]
    return Said(
        read.role,
        write_text(read),
        describe_calls(read.calls),
        tuple(shots),
        tuple(shot.digest() for shot in shots),
        tuple(unread),
    )


def _pictures_in(message: Message) -> tuple[list[Screenshot], list[str]]:
    shots = []
    unread = [f"content.{p.text}" for p in message.pieces if p.kind == "unknown"]
    for piece in message.pieces:
        if piece.kind == "picture":
            shot = picture_of(piece.picture)
            if shot is None:
                unread.append(UNREAD_PICTURE)
            else:
                shots.append(shot)
    return shots, unread


UNREAD_PICTURE = "content.image"  # an address or a path, which is not followed


def _message_error(value: object, row: int) -> BatchError:
    return BatchError.build(
        key=_MESSAGES,
        expected='a list of {"role": ..., "content": ...}',
        found=f"{value!r:.60} in row {row}",
        advice="Content is a text, or blocks as OpenAI, Anthropic, Gemini or MCP write"
        " them.",
    )


def _picture(value: Any, row: int) -> Screenshot:  # noqa: ANN401 whatever a cell holds
    shot = picture_of(value)
    if shot is not None:
        return shot
    raise BatchError.build(
        key=_PICTURES[0],
        expected="bytes of PNG or JPEG, a data URL, a picture of PIL, an array of"
        " pixels, or a Screenshot",
        found=f"{value!r:.60} in row {row}",
        advice="Read a file with `pathlib.Path(name).read_bytes()`.",
    )

"""A table with one row per step -> a batch: `Batch.from_steps`."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch

from rounddiag._typing import Array
from rounddiag.batch.batch import Batch
from rounddiag.batch.left_out import left_out_entry
from rounddiag.batch.picture_places import with_pictures
from rounddiag.batch.step_order import is_absent, sort_keys
from rounddiag.batch.trajectories import join_rows
from rounddiag.batch.turns import GENERATED
from rounddiag.errors import BatchError
from rounddiag.vision import EncodedScreenshot, Screenshot
from rounddiag.wording import format_names

_Said: TypeAlias = tuple[str, str]  # role and text

_TRAJECTORY, _STEP, _RESPONSE = "trajectory", "step", "response"
_CONTEXTS = ("prompt_ids", "messages", "prompt")  # the first that is there is used
_LOG_PROBS = ("rollout_log_probs", "old_log_probs")
_PICTURES = ("screenshots", "screenshot")
_REWARD = "reward"
_HISTORY = "history"  # the role of a reply that is in a context and in no row
_KEYS = {"sample", "round", "row"}  # of the round columns


def batch_of_steps(steps: object, fields: Mapping[str, Any]) -> Batch:
    """Build a batch from a table with one row per step; see `Batch.from_steps`."""
    table = StepTable.of(steps)
    rows = table.ordered()
    pictures = [table.pictures(row) for row in range(table.num_rows)]
    if table.context == "prompt_ids":
        return _join_ids(table, pictures, fields)
    return _join_texts(table, rows, pictures, fields)


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
        needed = [name for name in (_TRAJECTORY, _STEP) if name not in columns]
        needed += [] if present else ["`, `".join(_CONTEXTS[:2]) + "` or `prompt"]
        needed += [] if _RESPONSE in columns else [_RESPONSE]
        if needed:
            raise BatchError.build(
                key="steps",
                expected=f"the column `{needed[0]}`",
                found=format_names(columns),
                advice="Add it, or rename the column that holds it.",
            )
        table = cls(columns=columns, num_rows=num_rows, context=present[0])
        for name in (_TRAJECTORY, _STEP, table.context, _RESPONSE):
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
        keys = sort_keys(_as_array(self.columns[_STEP]))
        if keys is None:
            raise BatchError.build(
                key=_STEP,
                expected="numbers, or texts, in all rows",
                found=format_names(map(repr, self.columns[_STEP])),
                advice="Number the steps of each trajectory from 0.",
            )
        groups: dict[str, list[int]] = {}
        for row, name in enumerate(self.columns[_TRAJECTORY]):
            groups.setdefault(str(name), []).append(row)
        for name, rows in groups.items():
            rows.sort(key=keys.__getitem__)
            for first, second in pairwise(rows):
                if keys[first] == keys[second]:
                    raise BatchError.build(
                        key=_STEP,
                        expected="one row per step of each trajectory",
                        found=f"rows {first} and {second}, both step"
                        f" {self.columns[_STEP][first]!s:.40} of trajectory"
                        f" {name!r:.80}",
                        advice="Remove one of them, or give each trajectory a name of"
                        " its own.",
                    )
        return groups

    def ids(self, name: str) -> list[torch.Tensor]:
        """Return a column of token ids."""
        return [
            self._numbers(name, row, "iu").to(torch.int64)
            for row in range(self.num_rows)
        ]

    def log_probs(self, name: str) -> list[torch.Tensor]:
        """Return a column of log-probs; NaN in rows that have none."""
        sizes = map(len, self.columns[_RESPONSE])
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

    def texts(self, name: str) -> list[str]:
        """Return a column of texts."""
        for row, value in enumerate(self.columns[name]):
            if not isinstance(value, str):
                raise BatchError.build(
                    key=name,
                    expected="a text",
                    found=f"a {type(value).__name__} in row {row}",
                    advice="Token ids need the context as token ids too: the column"
                    " `prompt_ids`.",
                )
        return [*self.columns[name]]

    def pictures(self, row: int) -> list[Screenshot]:
        """Return the pictures of a row's context."""
        cells = [self.columns[name][row] for name in _PICTURES if name in self.columns]
        shots: list[Screenshot] = []
        for cell in cells:
            values = cell if isinstance(cell, list | tuple | np.ndarray) else [cell]
            shots += [_picture(v, row) for v in values if not _is_missing(v)]
        return shots

    def others(self) -> dict[str, Array]:
        """Return the columns that are no field of a batch."""
        used = {self.context, _RESPONSE, _REWARD, *_PICTURES}
        used |= {*_LOG_PROBS} if self.context == "prompt_ids" else set()
        return {k: _as_array(v) for k, v in self.columns.items() if k not in used}

    def rewards(self) -> list[float] | None:
        """Return the reward of each row, NaN where it has none; None without any."""
        if _REWARD not in self.columns:
            return None
        return [
            float("nan") if _is_missing(value) else float(value)
            for value in self.columns[_REWARD]
        ]


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
    if isinstance(value, np.ndarray | torch.Tensor):
        return False
    return bool(is_absent(value)) if value.__class__.__name__ != "NAType" else True


def _as_array(values: Sequence[Any]) -> Array:
    """Return an array: of numbers, where missing ones are NaN, else of objects."""
    known = [value for value in values if not _is_missing(value)]
    kinds = {np.asarray(value).dtype.kind for value in known if np.isscalar(value)}
    if known and all(map(np.isscalar, known)) and kinds <= {"i", "u", "f"}:
        if len(known) == len(values):
            return np.array(values)
        return np.array([np.nan if _is_missing(v) else v for v in values], np.float64)
    if kinds == {"b"} and len(known) == len(values) and all(map(np.isscalar, known)):
        return np.array(values)
    array = np.empty(len(values), dtype=object)
    array[:] = [None if _is_missing(value) else value for value in values]
    return array


def _picture(value: Any, row: int) -> Screenshot:  # noqa: ANN401 whatever a cell holds
    if isinstance(value, Screenshot):
        return value
    if isinstance(value, bytes):
        return EncodedScreenshot(data=value)
    if hasattr(value, "save") and hasattr(value, "convert"):  # a picture of PIL
        buffer = io.BytesIO()
        value.save(buffer, format="PNG")
        return EncodedScreenshot(data=buffer.getvalue())
    raise BatchError.build(
        key=_PICTURES[0],
        expected="bytes of PNG, JPEG or WebP, a picture of PIL, or a Screenshot",
        found=f"{value!r:.60} in row {row}",
        advice="Read a file with `pathlib.Path(name).read_bytes()`.",
    )


def _join_ids(
    table: StepTable,
    pictures: Sequence[Sequence[Screenshot]],
    fields: Mapping[str, Any],
) -> Batch:
    responses = table.ids(_RESPONSE)
    known = [name for name in _LOG_PROBS if name in table.columns]
    rows = Batch.from_rows(
        response_ids=responses,
        response_mask=[torch.ones(len(ids), dtype=torch.uint8) for ids in responses],
        prompt_ids=table.ids("prompt_ids"),
        rewards=table.rewards(),
        sample_columns=table.others(),
        **{name: table.log_probs(name) for name in known},
        **fields,
    )
    return join_rows(with_pictures(rows, pictures), _TRAJECTORY, _STEP)


def _join_texts(
    table: StepTable,
    groups: Mapping[Any, Sequence[int]],
    pictures: Sequence[Sequence[Screenshot]],
    fields: Mapping[str, Any],
) -> Batch:
    _require_no_log_probs(table)
    samples, num_rewritten = _turns(table, groups, pictures)
    order = [row for rows in groups.values() for row in rows]
    sizes = [*map(len, groups.values())]
    heads = np.cumsum([0, *sizes[:-1]])  # the first row of each trajectory, in order
    first = np.repeat(heads, sizes)
    rewards = table.rewards()
    columns = {name: values[order] for name, values in table.others().items()}
    if rewards is not None:
        columns["row_reward"] = np.array(rewards)[order]
    shared = {name for name, values in columns.items() if _agrees(values, first)}
    lost = left_out_entry(_KEYS & (columns.keys() - shared))
    note = _context_note(len(order) - len(groups), num_rewritten)
    return Batch.from_turns(
        samples,
        rewards=None
        if rewards is None
        else [rewards[rows[-1]] for rows in groups.values()],
        sample_ids=tuple(map(str, groups)),
        sample_columns={
            **{k: v[heads] for k, v in columns.items() if k in shared},
            "num_rows": np.array(sizes),
        },
        round_columns={
            **{k: v for k, v in columns.items() if k not in shared},
            "sample": np.repeat(np.arange(len(sizes)), sizes),
            "round": np.arange(len(order)) - first,
            "row": np.array(order),
        },
        **{**fields, "meta": {**fields["meta"], "contexts": note, **lost}},
    )


def _require_no_log_probs(table: StepTable) -> None:
    for name in _LOG_PROBS:
        if name in table.columns:
            raise BatchError.build(
                key=name,
                expected="token ids, to which log-probs belong",
                found=f"texts in `{table.context}`",
                advice="Pass the columns `prompt_ids` and `response` with token ids.",
            )


def _turns(
    table: StepTable,
    groups: Mapping[Any, Sequence[int]],
    pictures: Sequence[Sequence[Screenshot]],
) -> tuple[list[list[tuple[Any, ...]]], int]:
    """Return the turns of each trajectory, and the number of rewritten contexts."""
    contexts, responses = _said(table), table.texts(_RESPONSE)
    samples, num_rewritten = [], 0
    for rows in groups.values():
        turns: list[tuple[Any, ...]] = []
        before: list[_Said] | None = None
        seen: set[bytes] = set()
        for row in rows:
            is_append, entered = _entered(before, contexts[row])
            num_rewritten += not is_append
            shots = [shot for shot in pictures[row] if shot.digest() not in seen]
            seen = {shot.digest() for shot in pictures[row]}
            turns += _with_pictures(entered, shots)
            turns.append((GENERATED, responses[row]))
            before = [*contexts[row], (GENERATED, responses[row])]
        samples.append(turns)
    return samples, num_rewritten


def _context_note(num_later: int, num_rewritten: int) -> str:
    note = f"{num_later - num_rewritten} appended, {num_rewritten} rewritten"
    if num_rewritten:
        note += (
            ": of texts a sample has what entered each context, so that what left is"
            " lost; pass `prompt_ids` to keep each context"
        )
    return note


def _agrees(column: Array, first: Array) -> bool:
    """Return whether each row has the value of its trajectory's first row."""
    pairs = zip(column.tolist(), column[first].tolist(), strict=True)
    return all(repr(value) == repr(head) for value, head in pairs)


def _said(table: StepTable) -> list[list[_Said]]:
    """Return the context of each row as what each role said."""
    if table.context == "prompt":
        return [[("user", text)] for text in table.texts("prompt")]
    return [
        [_message(message, row) for message in _listed(messages, row)]
        for row, messages in enumerate(table.columns["messages"])
    ]


def _listed(messages: Any, row: int) -> Iterable[Any]:  # noqa: ANN401
    if isinstance(messages, list | tuple | np.ndarray):
        return messages
    raise _message_error(messages, row)


def _message(message: Any, row: int) -> _Said:  # noqa: ANN401 whatever a cell holds
    """Return who said what; pictures in blocks are those of `screenshots`."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise _message_error(message, row)
    content = message.get("content")
    blocks = [content] if isinstance(content, str) else content
    if not isinstance(blocks, list | tuple | np.ndarray):
        raise _message_error(message, row)
    return message["role"], "".join(_block(block, row) for block in blocks)


def _block(block: Any, row: int) -> str:  # noqa: ANN401 whatever a message holds
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and isinstance(block.get("text"), str):
        return str(block["text"])
    raise _message_error(block, row)


def _message_error(value: object, row: int) -> BatchError:
    return BatchError.build(
        key="messages",
        expected='a list of {"role": ..., "content": ...} with texts',
        found=f"{value!r:.60} in row {row}",
        advice="Write calls as text, and pass pictures as the column `screenshots`.",
    )


def _entered(
    before: Sequence[_Said] | None, context: list[_Said]
) -> tuple[bool, list[_Said]]:
    """Return whether a context appends, and what is new in it.

    A rewritten context has what differs from the one before after their common start.

    Examples
    --------
    >>> go, reply = ("user", "Go."), ("assistant", "click(1, 2)")
    >>> _entered([go, reply], [go, reply, ("tool", "done")])
    (True, [('tool', 'done')])
    >>> _entered([go, reply], [("user", "Go.click(1, 2) done")])
    (True, [('user', ' done')])
    >>> _entered([go, reply], [go, ("user", "You clicked.")])
    (False, [('user', 'You clicked.')])
    """
    if before is None:
        return True, context
    if context[: len(before)] == before:
        return True, context[len(before) :]
    written = "".join(text for _, text in before)
    if len(context) == 1 and context[0][1].startswith(written):
        role, text = context[0]
        return True, [(role, text[len(written) :])] if len(text) > len(written) else []
    num_same = 0
    for old, new in zip(before, context, strict=False):
        if old != new:
            break
        num_same += 1
    return False, context[num_same:]


def _with_pictures(
    entered: Sequence[_Said], shots: Sequence[Screenshot]
) -> list[tuple[Any, ...]]:
    """Return turns, of which the last has the pictures.

    Turns of `assistant` are rounds, so that replies in a context have another role.
    """
    turns = [(_HISTORY if role == GENERATED else role, text) for role, text in entered]
    if not shots:
        return [*turns]
    *earlier, (role, text) = turns or [("user", "")]
    return [*earlier, (role, text, shots)]

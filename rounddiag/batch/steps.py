"""A table with one row per step -> a batch: `Batch.from_steps`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch.batch import Batch
from rounddiag.batch.contexts import SAMPLER_PROMPTS
from rounddiag.batch.left_out import left_out_entry
from rounddiag.batch.messages import new_in
from rounddiag.batch.picture_places import with_pictures
from rounddiag.batch.sequence_difference import appends
from rounddiag.batch.step_table import (
    LOG_PROBS,
    RESPONSE,
    SAMPLED,
    STEP_NUMBER,
    TRAJECTORY,
    UNREAD_PICTURE,
    Said,
    StepTable,
)
from rounddiag.batch.trajectories import join_rows
from rounddiag.batch.turns import GENERATED
from rounddiag.errors import BatchError
from rounddiag.vision import Screenshot

_ACTION, _REWRITTEN = "action", "is_rewritten"  # round columns
_HISTORY = "history"  # the role of a reply that is in a context and in no row
_KEYS = {"sample", "round", "row"}  # of the round columns


def batch_of_steps(steps: object, fields: Mapping[str, Any]) -> Batch:
    """Build a batch from a table with one row per step; see `Batch.from_steps`."""
    table = StepTable.of(steps)
    groups = table.ordered()
    if table.context == "prompt_ids":
        return _join_ids(table, fields)
    return _join_texts(table, groups, fields)


def _join_ids(table: StepTable, fields: Mapping[str, Any]) -> Batch:
    responses = table.ids(RESPONSE)
    known = [name for name in LOG_PROBS if name in table.columns]
    rows = Batch.from_rows(
        response_ids=responses,
        response_mask=[torch.ones(len(ids), dtype=torch.uint8) for ids in responses],
        prompt_ids=table.ids("prompt_ids"),
        rewards=table.rewards(),
        sample_columns=table.others(),
        round_columns=_sampler_prompts(table, responses),
        **{name: table.log_probs(name) for name in known},
        **fields,
    )
    shots = table.pictures()
    if not any(shots):
        shots = [_shots(table.messages(row)) for row in range(table.num_rows)]
    return join_rows(with_pictures(rows, shots), TRAJECTORY, STEP_NUMBER)


def _sampler_prompts(table: StepTable, responses: Sequence[Tensor]) -> dict[str, Array]:
    """Return what the sampler read before each round, where the table has it."""
    if SAMPLED not in table.columns:
        return {}
    rows = [row for row, ids in enumerate(responses) if len(ids)]
    prompts = np.empty(len(rows), dtype=object)
    prompts[:] = [table.row_of_ids(SAMPLED, row).tolist() for row in rows]
    keys = {"sample": np.array(rows), "round": np.zeros(len(rows), dtype=np.int64)}
    return {**keys, SAMPLER_PROMPTS: prompts}


def _shots(messages: Iterable[Said]) -> list[Screenshot]:
    return [shot for message in messages for shot in message.shots]


def _join_texts(
    table: StepTable,
    groups: Mapping[Any, Sequence[int]],
    fields: Mapping[str, Any],
) -> Batch:
    for name in LOG_PROBS:
        if name in table.columns:
            raise BatchError.build(
                key=name,
                expected="token ids, to which log-probs belong",
                found=f"texts in `{table.context}`",
                advice="Pass the columns `prompt_ids` and `response` with token ids.",
            )
    contexts, responses = table.contexts(), table.responses()
    pictures = table.pictures()
    samples, first = [], np.zeros(table.num_rows, dtype=np.int64)
    sample, round_, is_rewritten = first.copy(), first.copy(), first.astype(bool)
    for number, rows in enumerate(groups.values()):
        turns: list[tuple[Any, ...]] = []
        before: _Context | None = None
        for index, row in enumerate(rows):
            context = _Context(contexts[row], pictures[row])
            entered, is_rewritten[row] = _entered(before, context)
            said = responses[row]
            turns += [*entered, (GENERATED, said.text, said.shots)]
            before = context._replace(said=[*context.said, said])
            sample[row], round_[row], first[row] = number, index, rows[0]
        samples.append(turns)
    columns = table.others()
    actions = [said.action for said in responses]
    if _ACTION not in columns and any(actions):
        columns[_ACTION] = np.array(actions, dtype=object)
    rewards = table.rewards()
    if rewards is not None:
        columns["row_reward"] = np.array(rewards)
    shared = {k for k, v in columns.items() if k != _ACTION and _agrees(v, first)}
    heads = [rows[0] for rows in groups.values()]
    order = [row for rows in groups.values() for row in rows]
    # An address that is not followed may be of a picture in a column.
    skipped = {UNREAD_PICTURE} if any(pictures) else set()
    messages = [message for said in (*contexts, responses) for message in said]
    unread = [n for message in messages for n in message.unread if n not in skipped]
    lost = left_out_entry({*(_KEYS & (columns.keys() - shared)), *unread})
    note = _context_note(table.num_rows - len(groups), int(is_rewritten.sum()))
    count = {"num_unread_blocks": len(unread)} if unread else {}
    meta = {**fields["meta"], "contexts": note, **lost, **count}
    return Batch.from_turns(
        samples,
        rewards=None
        if rewards is None
        else [rewards[rows[-1]] for rows in groups.values()],
        sample_ids=tuple(map(str, groups)),
        sample_columns={
            **{k: v[heads] for k, v in columns.items() if k in shared},
            "num_rows": np.array([len(rows) for rows in groups.values()]),
        },
        round_columns={
            **{k: v[order] for k, v in columns.items() if k not in shared},
            _REWRITTEN: is_rewritten[order],
            "sample": sample[order],
            "round": round_[order],
            "row": np.array(order),
        },
        **{**fields, "meta": meta},
    )


def _agrees(column: Array, first: Array) -> bool:
    """Return whether each row has the value of its trajectory's first row."""
    pairs = zip(column.tolist(), column[first].tolist(), strict=True)
    return all(repr(value) == repr(head) for value, head in pairs)


def _context_note(num_later: int, num_rewritten: int) -> str:
    note = f"{num_later - num_rewritten} appended, {num_rewritten} rewritten"
    if not num_rewritten:
        return note
    return (
        f"{note}: of texts a sample has what entered each context, so that what left is"
        " lost; pass `prompt_ids` to keep each context"
    )


class _Context(NamedTuple):
    """A context.

    Attributes
    ----------
    said: Its messages; of the step before, what the model wrote then too.
    pictures: Those that are in no message.
    """

    said: list[Said]
    pictures: list[Screenshot]

    @property
    def shown(self) -> list[bytes]:
        """The hashes of the pictures of its messages."""
        return [digest for message in self.said for digest in message.digests]


def _entered(
    before: _Context | None, context: _Context
) -> tuple[list[tuple[Any, ...]], bool]:
    """Return what entered a context, as turns, and if the context was rewritten.

    It goes on from the one before if it begins with all that was said and shown then.
    A picture entered where the context before lacks it.

    Examples
    --------
    >>> go, reply = Said("user", "Go."), Said("assistant", "click(1, 2)")
    >>> known = _Context([go, reply], [])
    >>> _entered(known, _Context([go, reply, Said("tool", "done")], []))
    ([('tool', 'done', [])], False)
    >>> _entered(known, _Context([Said("user", "Go.click(1, 2) done")], []))
    ([('user', ' done', [])], False)
    >>> _entered(known, _Context([go, Said("user", "You clicked.")], []))
    ([('user', 'You clicked.', [])], True)
    """
    said = context.said
    if before is None:
        return _turns(said, set(), context.pictures), False
    shown, known = before.shown, {shot.digest() for shot in before.pictures}
    is_rewritten = not appends(shown, context.shown)
    written = "".join(message.text for message in before.said)
    if len(said) == 1 and said[0].text.startswith(written):
        rest = said[0].text[len(written) :]
        new = [said[0]._replace(text=rest)] if rest else []
    else:
        indexes, differs = new_in([m.key for m in before.said], [m.key for m in said])
        new = [said[index] for index in indexes]
        is_rewritten |= differs
    known |= {*shown} if is_rewritten else set()
    return _turns(new, known, context.pictures), is_rewritten


def _turns(
    said: Iterable[Said], known: set[bytes], pictures: Iterable[Screenshot]
) -> list[tuple[Any, ...]]:
    """Return turns with the pictures that are not known; others are in the last one.

    Turns of `assistant` are rounds, so that replies in a context have another role.
    """
    turns: list[tuple[Any, ...]] = [
        (
            _HISTORY if message.role == GENERATED else message.role,
            message.text,
            [
                shot
                for shot, digest in zip(message.shots, message.digests, strict=True)
                if digest not in known
            ],
        )
        for message in said
    ]
    shots = [shot for shot in pictures if shot.digest() not in known]
    if not shots:
        return turns
    *earlier, (role, text, own) = turns or [("user", "", [])]
    return [*earlier, (role, text, [*own, *shots])]

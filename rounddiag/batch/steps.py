"""A table with one row per step -> a batch: `Batch.from_steps`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch.batch import Batch
from rounddiag.batch.context_store import Contexts
from rounddiag.batch.contexts import SAMPLER_PROMPTS
from rounddiag.batch.left_out import left_out_entry
from rounddiag.batch.picture_places import with_pictures
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
from rounddiag.batch.text_contexts import TextTrajectory
from rounddiag.batch.trajectories import join_rows, with_context_columns
from rounddiag.errors import BatchError
from rounddiag.vision import Screenshot

_ACTION = "action"  # a round column
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
    trajectories, first = [], np.zeros(table.num_rows, dtype=np.int64)
    sample, round_ = first.copy(), first.copy()
    for number, rows in enumerate(groups.values()):
        trajectory = TextTrajectory()
        for index, row in enumerate(rows):
            trajectory.read(contexts[row], pictures[row])
            trajectory.write(responses[row])
            sample[row], round_[row], first[row] = number, index, rows[0]
        trajectories.append(trajectory)
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
    count = {"num_unread_blocks": len(unread)} if unread else {}
    meta = {**fields["meta"], **lost, **count}
    is_rewritten = any(trajectory.rewritten for trajectory in trajectories)
    batch = Batch.from_turns(
        [trajectory.turns(with_pieces=is_rewritten) for trajectory in trajectories],
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
            "sample": sample[order],
            "round": round_[order],
            "row": np.array(order),
        },
        **{**fields, "meta": meta},
    )
    if is_rewritten:
        known = [
            context
            for number, trajectory in enumerate(trajectories)
            for context in trajectory.contexts(number)
        ]
        batch = replace(batch, contexts=Contexts.build(known))
    return with_context_columns(batch)


def _agrees(column: Array, first: Array) -> bool:
    """Return whether each row has the value of its trajectory's first row."""
    pairs = zip(column.tolist(), column[first].tolist(), strict=True)
    return all(repr(value) == repr(head) for value, head in pairs)

"""A table with one row per step -> a batch: `Batch.from_steps`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag._typing import Array
from rounddiag.batch.batch import Batch
from rounddiag.batch.context_store import Contexts
from rounddiag.batch.contexts import SAMPLER_PROMPTS
from rounddiag.batch.left_out import left_out_entry, left_out_in
from rounddiag.batch.picture_places import with_pictures
from rounddiag.batch.step_table import (
    LOG_PROBS,
    RESPONSE,
    SAMPLED,
    STEP_NUMBER,
    TRAJECTORY,
    UNREAD_PICTURE,
    StepTable,
)
from rounddiag.batch.text_contexts import TextTrajectory
from rounddiag.batch.trajectories import (
    REPLACED,
    ROW_REWARD,
    agree,
    join_rows,
    with_context_columns,
)
from rounddiag.errors import BatchError

_ACTION = "action"  # a round column


def from_steps(
    steps: object,
    *,
    tokenizer: object | None = None,
    step: int | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Batch:
    """Build a batch from the history of any agent: a table with one row per step.

    Parameters
    ----------
    steps : DataFrame, or list of dict
        Each step has a context of its own: all that the model read before it wrote
        the response. The rows may have any order. Their columns:

        ==========================  ================================================
        `trajectory`, `step`        the trajectory's name; the step's number
        `prompt_ids`, or            token ids of the context,
        `messages`, or              messages as OpenAI, Anthropic, Gemini or MCP
                                    write them, with calls and pictures,
        `prompt`                    or a text
        `response`                  token ids with `prompt_ids`, else a text,
                                    content or a message; what it calls is the
                                    column `action`, if there is none
        `screenshots`               pictures of the context that are in no message,
                                    one or a list: bytes, a data URL, a picture of
                                    PIL, an array of pixels, or `Screenshot`; also
                                    `screenshot`
        `rollout_prompt_ids`        with `prompt_ids`, which the trainer read: what
                                    the sampler read
        `reward`                    a sample has that of its last step
        `rollout_log_probs`,        of each token of the response, in nats; with
        `old_log_probs`             `prompt_ids` alone
        others, such as `action`    a column of samples where all rows of each
                                    trajectory agree, else of rounds
        ==========================  ================================================

    tokenizer, step, meta
        Fields of the batch.

    Returns
    -------
    Batch
        One sample per trajectory, in the order of the first rows. With `prompt_ids`
        it is that of `load(sample_by="trajectory")`: `context` returns each
        context. With texts alone it is that of `from_turns`: a sample has the
        messages and pictures that entered each context, and `context` returns each
        context. What is in a message and not read is counted and named in `meta`;
        addresses of pictures are not followed.

    Raises
    ------
    BatchError
        If a column is missing, a cell that must have a value is empty, two rows
        have the same step of a trajectory, or there are no rows.

    Examples
    --------
    >>> go = {"role": "user", "content": "Go on."}
    >>> reply = {"role": "assistant", "content": "back()"}
    >>> first = {"trajectory": "a", "step": 0, "messages": [go]}
    >>> then = {"trajectory": "a", "step": 1, "messages": [go, reply, go]}
    >>> import rounddiag as rd
    >>> batch = rd.Batch.from_steps(
    ...     [{**first, "response": "back()"}, {**then, "response": "click(3, 4)"}]
    ... )
    >>> batch.context(0, 1).text
    'Go on.back()Go on.'
    """
    table = StepTable.of(steps)
    groups = table.ordered()
    rewards = table.rewards()
    columns, lost = table.others()
    lost |= REPLACED & columns.keys() - ({ROW_REWARD} if rewards is None else set())
    own = {name: column for name, column in columns.items() if name not in lost}
    facts = {**(meta or {}), **left_out_entry(lost)}
    fields = {"tokenizer": tokenizer, "step": step, "meta": facts}
    if table.context == "prompt_ids":
        return _join_ids(table, rewards, own, fields)
    return _join_texts(table, groups, rewards, own, fields)


def _join_ids(
    table: StepTable,
    rewards: Sequence[float] | None,
    columns: dict[str, Array],
    fields: Mapping[str, Any],
) -> Batch:
    responses = table.ids(RESPONSE)
    known = [name for name in LOG_PROBS if name in table.columns]
    rows = Batch.from_rows(
        response_ids=responses,
        response_mask=[torch.ones(len(ids), dtype=torch.uint8) for ids in responses],
        prompt_ids=table.ids("prompt_ids"),
        rewards=rewards,
        sample_columns=columns,
        round_columns=_sampler_prompts(table, responses),
        **{name: table.log_probs(name) for name in known},
        **fields,
    )
    shots = table.pictures()
    if not any(shots):
        shots = [
            [shot for message in table.messages(row) for shot in message.shots]
            for row in range(table.num_rows)
        ]
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


def _join_texts(
    table: StepTable,
    groups: Mapping[Any, Sequence[int]],
    rewards: Sequence[float] | None,
    columns: dict[str, Array],
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
    trajectories = []
    for rows in groups.values():
        trajectory = TextTrajectory()
        for row in rows:
            trajectory.read(contexts[row], pictures[row])
            trajectory.write(responses[row])
        trajectories.append(trajectory)
    is_rewritten = any(trajectory.rewritten for trajectory in trajectories)
    actions = [said.action for said in responses]
    if _ACTION not in columns and any(actions):
        columns[_ACTION] = np.array(actions, dtype=object)
    if rewards is not None:
        columns[ROW_REWARD] = np.array(rewards)
    # An address that is not followed may be of a picture in a column.
    skipped = {UNREAD_PICTURE} if any(pictures) else set()
    messages = [message for said in (*contexts, responses) for message in said]
    unread = [n for message in messages for n in message.unread if n not in skipped]
    count = {"num_unread_blocks": len(unread)} if unread else {}
    left_out = left_out_entry({*left_out_in(fields["meta"]), *unread})
    calls = [
        f"sample {number}, round {round_}: parsed as JSON, the next context has"
        f" `{read}`, not `{written}`"
        for number, trajectory in enumerate(trajectories)
        for round_, written, read in trajectory.rewritten_calls
    ]
    note = {"rewritten_calls": calls} if calls else {}
    meta = {**fields["meta"], **left_out, **count, **note}
    batch = Batch.from_turns(
        [trajectory.turns(with_pieces=is_rewritten) for trajectory in trajectories],
        rewards=None
        if rewards is None
        else [rewards[rows[-1]] for rows in groups.values()],
        sample_ids=tuple(map(str, groups)),
        **_columns_of_texts(columns, groups),
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


def _columns_of_texts(
    columns: Mapping[str, Array], groups: Mapping[Any, Sequence[int]]
) -> dict[str, dict[str, Array]]:
    sizes = np.array([len(rows) for rows in groups.values()])
    heads = np.array([rows[0] for rows in groups.values()])
    order = np.array([row for rows in groups.values() for row in rows])
    first = np.repeat(heads, sizes)
    shared = {
        name
        for name, column in columns.items()
        if name != _ACTION and agree(column[order], column[first])
    }
    by_sample = {name: columns[name][heads] for name in columns if name in shared}
    by_round = {name: columns[name][order] for name in columns if name not in shared}
    keys = {
        "sample": np.repeat(np.arange(len(sizes)), sizes),
        "round": np.concatenate([np.arange(size) for size in sizes]),
        "row": order,
    }
    return {
        "sample_columns": {**by_sample, "num_rows": sizes},
        "round_columns": {**by_round, **keys},
    }

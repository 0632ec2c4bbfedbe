"""Conversations without token ids, or with those of each call: rows and documents.

=====================  =============================================================
verifiers, prime-rl    `results.jsonl`, `train_rollouts.jsonl`: prompt, completion,
                       and with `trajectory` every call of the model
verl                   `rollout_data_dir`, `validation_data_dir`: decoded texts
TRL, AReaL             logs of completions
mini-swe-agent         `*.traj.json`
rLLM                   `episode_*.json`
=====================  =============================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rounddiag.batch import Batch
from rounddiag.batch.messages import messages_in
from rounddiag.batch.turns import GENERATED
from rounddiag.loaders.assembly.trajectory_batch import batch_of
from rounddiag.loaders.assembly.turns import (
    AgentTurn,
    Transcript,
    call_of,
    new_messages,
)
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.outcome import outcome
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, records_in
from rounddiag.text.json_text import JsonError, object_in, objects_in, parse_json

_Record = Mapping[str, Any]


def read_completions(
    root: JsonLines | Table | dict[str, Any], source: Source
) -> Iterator[Transcript]:
    """Read rows of a prompt and a completion, texts or lists, or of `messages`.

    With `trajectory`, a round is a call; the messages of its prompt that are new come
    before it. A call whose prompt does not continue what came before is marked by the
    round column `is_rewritten`.
    """
    for record in records_in(root):
        transcript = Transcript(file=source.path)
        steps = objects_in(record.get("trajectory"))
        if steps:
            _add_calls(transcript, steps)
            _leave_out_repeated(transcript, record, steps)
        else:
            transcript.add_prompt(messages_in(record.get("prompt")))
            completion = record.get("completion", _messages(record))
            if isinstance(completion, str):
                completion = [{"role": GENERATED, "content": completion}]
            transcript.add_written(objects_in(completion))
            transcript.add_pictures(record.get("images"))
        transcript.columns = _columns(transcript, record)
        if isinstance(name := record.get("trajectory_id"), str):
            transcript.names = {name: 0}
        yield transcript


def _messages(record: _Record) -> object:
    """Return `messages`; tables may have them as JSON."""
    messages = record.get("messages")
    if not isinstance(messages, str):
        return messages
    with suppress(JsonError):
        return parse_json(messages)
    return None


_IDS = ("prompt_ids", "completion_ids", "completion_logprobs")


def _add_calls(transcript: Transcript, steps: Sequence[_Record]) -> None:
    known: list[Any] = []
    for step in steps:
        prompt = messages_in(step.get("prompt"))
        new, is_rewritten = new_messages(known, prompt)
        transcript.add_prompt(new)
        written = messages_in(step.get("completion"))
        tokens = step.get("tokens")
        columns = {
            "is_rewritten": is_rewritten and bool(known),
            **transcript.plain(step, *_OF_CALLS, of="trajectory"),
            **_usage(transcript, step.get("response")),
        }
        transcript.leave_out(tokens, *_IDS, of="trajectory.tokens")
        first = True
        for message in written:
            role = str(message.get("role", GENERATED))
            if role == GENERATED and first:
                call = call_of(tokens, *_IDS) if isinstance(tokens, dict) else None
                turn = transcript.add(message, GENERATED, call=call, columns=columns)
                if "action" in turn.columns:
                    turn.action = str(turn.columns.pop("action"))
                first = False
            else:
                transcript.add(message)
        known = [*prompt, *written]


def _leave_out_repeated(
    transcript: Transcript, record: _Record, steps: Sequence[_Record]
) -> None:
    """Name what a row says that its calls do not."""
    said = [m for step in steps for part in _PARTS for m in messages_in(step.get(part))]
    for part in _PARTS:
        new = [m for m in messages_in(record.get(part)) if m not in said]
        transcript.left_out.update(f"{part}.{name}" for m in new for name in m)


_PARTS = ("prompt", "completion")
# Of a call: what is read of it, and its answer, which is its completion.
_OF_CALLS = ("trajectory_id", "prompt", "completion", "response", "tokens")


def _usage(transcript: Transcript, response: object) -> dict[str, object]:
    """Return finish reason and numbers of tokens of the response to a call."""
    response = object_in(response)
    message = object_in(response.get("message")) or response
    reason = message.get("finish_reason")
    named = {"finish_reason": reason} if isinstance(reason, str) else {}
    usage = transcript.plain(response.get("usage"), of="response.usage")
    if response.keys() - {"usage"}:
        transcript.left_out.add("trajectory.response")
    return {**named, **usage, **outcome(usage, num_generated="completion_tokens")}


_OF_ROWS = (
    *("prompt", "completion", "messages", "trajectory", "trajectory_id"),
    *("metrics", "error", "timing", "images"),
)


def _columns(transcript: Transcript, record: _Record) -> dict[str, object]:
    columns = transcript.plain(record, *_OF_ROWS)
    columns = {**transcript.plain(record.get("metrics"), of="metrics"), **columns}
    timing = record.get("timing")
    columns |= {
        **transcript.named(timing, of="timing"),
        **outcome(timing, seconds="total"),
        **outcome(record, error="error"),
    }
    if "reward" in columns:
        columns["rewards"] = columns.pop("reward")
    if isinstance(error := record.get("error"), dict):
        name = "error_chain_repr" if "error_chain_repr" in error else "error"
        columns["error"] = str(error.get(name))
        transcript.leave_out(error, name, of="error")
    for name in ("example_id", "task_id"):
        if record.get(name) is not None:
            columns["uid"] = str(record[name])
    return columns


# What is left of a chat template's turns when special tokens are skipped.
_BORDER = re.compile(r"\n(user|tool|assistant)\n")


def read_verl(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read verl's decoded samples.

    Special tokens are skipped in them: of the borders of turns, lines with the role are
    left (`meta["mask_source"]` says so).
    """
    for record in lines:
        transcript = Transcript(file=source.path)
        transcript.turns.append(AgentTurn(role="prompt", text=str(record.get("input"))))
        role = GENERATED
        for index, part in enumerate(_BORDER.split(f"{record.get('output')}")):
            if index % 2:
                role = part
            elif part or role == GENERATED:
                transcript.turns.append(AgentTurn(role=role, text=part))
        transcript.columns = transcript.plain(record, "input", "output", "score")
        transcript.columns["rewards"] = record["score"]
        if isinstance(record.get("uid"), str):
            transcript.names = {record["uid"]: 0}
            transcript.columns["uid"] = record["uid"].rsplit("_", 2)[0]
        yield transcript


def _read_verl_batch(lines: JsonLines, source: Source) -> Batch:
    mask_source = "lines of roles in the decoded text"
    return batch_of(read_verl(lines, source), source, mask_source=mask_source)


def read_mini_swe_agent(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read documents of `info` and `messages`."""
    for document in lines:
        info = object_in(document.get("info"))
        name = source.path.name.split(".traj")[0]
        transcript = Transcript(file=source.path, names={name: 0})
        for message in objects_in(document.get("messages")):
            extra = object_in(message.get("extra"))
            said = {name: value for name, value in message.items() if name != "extra"}
            columns = transcript.plain(extra, "actions", of="messages.extra")
            turn = transcript.add(said, columns=columns)
            actions = objects_in(extra.get("actions")) if turn.is_round else []
            texts = [str(action.get("command", action)) for action in actions]
            turn.action = "\n".join(texts) or turn.action
        stats = transcript.plain(info.get("model_stats"), of="info.model_stats")
        transcript.columns = {
            **transcript.plain(document, "info", "messages", "trajectory_format"),
            **transcript.plain(info, "exit_status", "model_stats", of="info"),
            **stats,
            **outcome(stats, cost="instance_cost"),
            **outcome(info, status="exit_status"),
        }
        yield transcript


def read_rllm(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read the trajectories of an episode; each step has its whole conversation."""
    for document in lines:
        name = str(document.get("episode_id"))
        for index, record in enumerate(objects_in(document.get("trajectories"))):
            names = {f"{name}_{index}" if index else name: 0}
            transcript = Transcript(file=source.path, names=names)
            steps = objects_in(record.get("steps"))
            _add_calls(transcript, [*map(_rllm_call, steps)])
            transcript.columns = {
                **transcript.plain(document, "epoch", "episode_id", "trajectories"),
                **transcript.plain(record, "reward", "steps", of="trajectories"),
                "rewards": record.get("reward"),
                "uid": str(document.get("task_hash")),
            }
            yield transcript


def _rllm_call(step: _Record) -> dict[str, Any]:
    """Return a step as a call: the messages before the answer, and the answer."""
    messages = messages_in(step.get("chat_completions"))
    answer = [{"role": GENERATED, "content": step.get("model_response")}]
    if messages and messages[-1].get("role") == GENERATED:
        messages, answer = messages[:-1], messages[-1:]
    others = {name: step[name] for name in step.keys() - _OF_STEPS}
    return {**others, "prompt": messages, "completion": answer}


_OF_STEPS = {"chat_completions", "model_response"}


RESULTS = Format(
    name="results of an evaluation, rollouts of a training",
    framework="verifiers, prime-rl",
    files=("results.jsonl", "train_rollouts.jsonl"),
    keys=("example_id", "prompt", "completion", "reward"),
    trajectories=read_completions,
    verified="written by verifiers 0.1.14",
    in_parts=True,
)
COMPLETIONS = Format(
    name="prompts and completions",
    framework="any; TRL's log of completions, AReaL's dump of rollouts",
    files=("completions_*.parquet", "*.jsonl"),
    keys=("prompt", "completion"),
    trajectories=read_completions,
)
MESSAGES = replace(
    COMPLETIONS,
    name="conversations",
    framework="any",
    files=("*.jsonl",),
    keys=("messages",),
)
VERL_ROLLOUTS = Format(
    name="decoded samples of `rollout_data_dir` and `validation_data_dir`",
    framework="verl",
    files=("[0-9]*.jsonl", "*.jsonl"),
    keys=("input", "output", "score"),
    read=_read_verl_batch,
    trajectories=read_verl,
    verified="written by verl 0.9.1",
    in_parts=True,
)
MINI_SWE_AGENT = Format(
    name="trajectories",
    framework="mini-swe-agent",
    files=("*.traj.json",),
    keys=("info", "messages", "trajectory_format"),
    trajectories=read_mini_swe_agent,
    verified="written by mini-swe-agent 2.4.6",
    in_parts=True,
)
RLLM_EPISODE = Format(
    name="episodes",
    framework="rLLM",
    files=("episode_*.json",),
    keys=("training_step", "episode_id", "trajectories"),
    trajectories=read_rllm,
    in_parts=True,
)

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
from rounddiag.batch.content import SAID
from rounddiag.batch.messages import TOOL, is_item, messages_in
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
            add_calls(transcript, steps)
            _leave_out_repeated(transcript, record, steps)
        else:
            transcript.add_prompt(messages_in(record.get("prompt")))
            completion = record.get("completion", _messages(record))
            if isinstance(completion, str):
                completion = [{"role": GENERATED, "content": completion}]
            transcript.add_written(messages_in(completion))
            transcript.add_pictures(record.get("images", record.get("image")))
        transcript.columns = _columns(transcript, record)
        if isinstance(name := record.get("trajectory_id"), str):
            transcript.names = {name: 0}
        yield transcript


def parsed(value: object) -> object:
    """Return what a text of JSON holds; a table has objects as such."""
    if isinstance(value, str):
        with suppress(JsonError):
            return parse_json(value)
    return value


def _of_sharegpt(record: _Record) -> tuple[str, ...]:
    is_other = "messages" in record or "conversations" not in record
    return () if is_other else ("conversations", "system")


def _messages(record: _Record) -> list[_Record]:
    messages, system = map(record.get, _of_sharegpt(record) or ("messages", ""))
    given = [{"role": "system", "content": system}] if isinstance(system, str) else []
    items = objects_in(parsed(messages))
    return [*given, *(message for item in items for message in _messages_of(item))]


def _messages_of(item: _Record) -> list[_Record]:
    if message := as_message(item):
        return [message]
    inner = [m for v in item.values() if isinstance(v, dict) for m in _messages_of(v)]
    return [*filter(as_message, inner)] or [item]


def as_message(value: _Record) -> _Record | None:
    """Return an object as a message of a role and its content; None if it is none.

    Others name the role and what was said otherwise: ShareGPT's `from` and `value`.

    Examples
    --------
    >>> as_message({"from": "gpt", "value": "wait()"})
    {'role': 'assistant', 'content': 'wait()'}
    """
    key = next((k for k in _SPEAKERS if isinstance(value.get(k), str)), "")
    said = next((name for name in _SAID if name in value), "")
    is_typed = key == "type" and value[key] in _TYPES and "content" in value
    if not said or not (is_typed or key in _SPEAKERS[:-1]):
        return value if is_item(value) else None
    if key == "type" or (key == "role" and value[key] not in _ROLES and said in SAID):
        return value
    name, words = value[key], value[said]
    others = {k: v for k, v in value.items() if k not in {key, said}}
    said = said if said in SAID else "content"
    if name == "function_call" and isinstance(words, str):
        with suppress(JsonError):
            said, words = "tool_calls", parse_json(words, dict | list)
    return {**others, "role": _ROLES.get(name, name), said: words}


_SPEAKERS = ("role", "from", "speaker", "type")
_SAID = (*SAID, "value", "message")
_TYPES = {"human", "ai", "system", "tool", "user", "assistant"}  # LangChain's
# Names of roles, most of them in ShareGPT's layout as LLaMA-Factory reads it.
_ROLES = {
    **dict.fromkeys(("gpt", "chatgpt", "bot", "agent", "ai", "AI"), GENERATED),
    "function_call": GENERATED,
    "human": "user",
    "observation": TOOL,
}


def read_conversation(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read one trajectory, of which each record is a message."""
    yield from read_completions(
        JsonLines(source, {"messages": [*map(dict, lines)]}), source
    )


_IDS = ("prompt_ids", "completion_ids", "completion_logprobs")


def add_calls(transcript: Transcript, steps: Sequence[_Record]) -> None:
    """Add calls: what is new in the prompt of each, and its completion, a round."""
    known: list[Any] = []
    for step in steps:
        prompt = messages_in(step.get("prompt"))
        new, is_rewritten = new_messages(known, prompt)
        transcript.add_prompt(new)
        fields = {name for message in (*known, *new) for name in message}.union(SAID)
        again = {name for message in prompt for name in message} - fields
        transcript.left_out |= {f"trajectory.prompt.{name}" for name in again}
        written = messages_in(step.get("completion"))
        tokens = step.get("tokens")
        columns = transcript.merge(
            derived={"is_rewritten": is_rewritten and bool(known)},
            trajectory=transcript.plain(step, *OF_CALLS, of="trajectory"),
            response=_usage(transcript, step.get("response")),
        )
        call = call_of(tokens, *_IDS) if isinstance(tokens, dict) else None
        used = _IDS[: 0 if call is None else 3 if call[2] is not None else 2]
        transcript.leave_out(tokens, *used, of="trajectory.tokens")
        first = True
        for message in written:
            role = str(message.get("role", GENERATED))
            if role == GENERATED and first:
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
OF_CALLS = ("trajectory_id", "prompt", "completion", "response", "tokens")


def _usage(transcript: Transcript, response: object) -> dict[str, object]:
    response = object_in(response)
    message = object_in(response.get("message")) or response
    reason = message.get("finish_reason")
    named = {"finish_reason": reason} if isinstance(reason, str) else {}
    usage = transcript.plain(response.get("usage"), of="response.usage")
    if response.keys() - {"usage"}:
        transcript.left_out.add("trajectory.response")
    facts = outcome(usage, num_generated="completion_tokens")
    return transcript.merge(message=named, usage=usage, outcome=facts)


_OF_ROWS = (
    *("prompt", "completion", "messages", "trajectory", "trajectory_id"),
    *("metrics", "error", "timing", "images"),
)


def _columns(transcript: Transcript, record: _Record) -> dict[str, object]:
    used = (*([] if "images" in record else ["image"]), *_of_sharegpt(record))
    timing = record.get("timing")
    chain = "error_chain_repr"
    key = chain if chain in object_in(record.get("error")) else "error"
    facts = {
        **outcome(timing, seconds="total"),
        **transcript.described(record, "error", key),
    }
    for name in ("example_id", "task_id"):
        if record.get(name) is not None:
            facts["uid"] = str(record[name])
    columns = transcript.merge(
        metrics=transcript.plain(record.get("metrics"), of="metrics"),
        row=transcript.plain(record, *_OF_ROWS, *used),
        timing=transcript.named(timing, of="timing"),
        outcome=facts,
    )
    rewards = {"rewards": columns.pop("reward")} if "reward" in columns else {}
    return transcript.merge(row=columns, reward=rewards)


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
        columns = transcript.plain(record, "input", "output", "score")
        score = {"rewards": record["score"]}
        transcript.columns = transcript.merge(row=columns, score=score)
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
            for action in objects_in(extra.get("actions")):
                transcript.leave_out(action, "command", of="messages.extra.actions")
            turn.action = "\n".join(texts) or turn.action
        stats = transcript.plain(info.get("model_stats"), of="info.model_stats")
        transcript.columns = transcript.merge(
            document=transcript.plain(
                document, "info", "messages", "trajectory_format"
            ),
            info=transcript.plain(info, "exit_status", "model_stats", of="info"),
            model_stats=stats,
            outcome={
                **outcome(stats, cost="instance_cost"),
                **outcome(info, status="exit_status"),
            },
        )
        yield transcript


def read_rllm(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read the trajectories of an episode; each step has its whole conversation."""
    for document in lines:
        name = str(document.get("episode_id"))
        for index, record in enumerate(objects_in(document.get("trajectories"))):
            names = {f"{name}_{index}" if index else name: 0}
            transcript = Transcript(file=source.path, names=names)
            steps = objects_in(record.get("steps"))
            add_calls(transcript, [*map(_rllm_call, steps)])
            own = transcript.plain(record, "reward", "steps", of="trajectories")
            transcript.columns = transcript.merge(
                document=transcript.plain(
                    document, "epoch", "episode_id", "trajectories"
                ),
                trajectories=own,
                derived={
                    "rewards": record.get("reward"),
                    "uid": str(document.get("task_hash")),
                },
            )
            yield transcript


def _rllm_call(step: _Record) -> dict[str, Any]:
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
SHAREGPT = replace(
    COMPLETIONS,
    name="conversations of `from` and `value`, with pictures where `<image>` stands",
    framework="any; LLaMA-Factory, LLaVA, ShareGPT",
    files=("*.jsonl", "*.parquet"),
    keys=("conversations",),
)
MESSAGE_LIST = Format(
    name="one conversation: a list of messages",
    framework="WebVoyager",
    files=("interact_messages.json",),
    keys=("role", ("content", "parts")),
    trajectories=read_conversation,
    in_parts=True,
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

"""Logged calls of a server that speaks OpenAI's API: a request and its response.

A line is a call. Ids and log-probs are where vLLM writes them: `return_token_ids` puts
`prompt_token_ids` into the response and `token_ids` into a choice, `logprobs` a list of
objects (chat completions) or `token_logprobs` (completions). In the output of OpenAI's
batches, the response is a `body`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from rounddiag.batch.messages import messages_in
from rounddiag.batch.turns import GENERATED
from rounddiag.columns.column import is_real
from rounddiag.loaders.assembly.turns import Transcript, said_key
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.conversations import OF_CALLS, add_calls
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, records_in
from rounddiag.text.json_text import object_in, objects_in

_Call = dict[str, Any]
_PROMPTS = ("messages", "prompt", "input")
_READ = {*_PROMPTS, "request", "response", "choices"}
_OF_CHOICES = {"index", "message", "text", "token_ids", "prompt_token_ids", "logprobs"}


def read_calls(root: JsonLines | Table, source: Source) -> Iterator[Transcript]:
    """Read calls; one whose messages begin with all of an earlier one follows it.

    What the records and requests of each trajectory agree about is a column of samples,
    the rest one of rounds.
    """
    trajectories: list[list[tuple[_Call, _Call]]] = []
    ends: dict[tuple[bytes, ...], list[tuple[_Call, _Call]]] = {}
    for record in records_in(root):
        asked, answer = ({**object_in(record.get(n))} for n in ("request", "response"))
        given = {**record, **asked}
        body = object_in(answer.pop("body", None))
        answer = {**answer, **body}
        answer = _with_choices(answer) or {**record}
        prompt = next((given[name] for name in _PROMPTS if name in given), None)
        messages = messages_in(prompt)
        keys = [*map(said_key, messages)]
        choices = objects_in(answer.get("choices"))
        facts = {
            f"request.{k}" if k in OF_CALLS else k: given[k]
            for k in given.keys() - _READ
        }
        if not choices:  # it failed
            trajectories.append([(facts, {"prompt": messages})])
        facts = {} if answer == record else facts
        for choice in choices:
            said = choice.get("message") or {"content": choice.get("text")}
            said = {**said, "role": GENERATED}
            known = (tuple(keys[:size]) for size in range(len(keys), 0, -1))
            calls = ends.pop(next((end for end in known if end in ends), ()), [])
            trajectories += [] if calls else [calls]
            calls.append((facts, _call(answer, choice, messages, prompt, said)))
            ends[(*keys, said_key(said))] = calls
    shared = _shared_facts([[facts for facts, _ in calls] for calls in trajectories])
    for calls in trajectories:
        transcript = Transcript(file=source.path)
        first = calls[0][0]
        transcript.columns = transcript.plain({n: first.get(n) for n in shared})
        steps = []
        for facts, call in calls:
            own = {n: v for n, v in facts.items() if n not in shared}
            steps.append(transcript.merge(response=call, request=own))
            if is_real(reward := facts.get("reward")):
                transcript.columns["rewards"] = reward  # the last of its calls
        add_calls(transcript, steps)
        yield transcript


def _with_choices(answer: _Call) -> _Call:
    """Return a response of Anthropic, or of the Responses API, as one of a choice."""
    if "choices" in answer or not answer:
        return answer
    said = {k: answer[k] for k in answer.keys() - {"usage", "id"}}
    others = {k: answer[k] for k in answer.keys() - said.keys()}
    return {**others, "choices": [{"message": said}]}


def _shared_facts(trajectories: list[list[_Call]]) -> set[str]:
    """Return the names that have one value in all calls of each trajectory."""
    names = {name for calls in trajectories for facts in calls for name in facts}
    return {
        name
        for name in names
        if all(
            facts.get(name) == calls[0].get(name)
            for calls in trajectories
            for facts in calls
        )
    }


def _call(
    answer: _Call, choice: _Call, messages: object, prompt: object, said: object
) -> _Call:
    """Return a choice as a call of a trajectory of verifiers."""
    ids = prompt if isinstance(prompt, np.ndarray) else None
    log_probs = object_in(choice.get("logprobs"))
    tokens = objects_in(log_probs.get("content"))
    values = [token.get("logprob", np.nan) for token in tokens]
    listed = np.array(values) if values else log_probs.get("token_logprobs")
    others = {k: v for k, v in choice.items() if k not in _OF_CHOICES}
    return {
        **{k: answer[k] for k in answer.keys() - _READ - {"id", "usage", *_OF_CHOICES}},
        **others,
        **({"request_id": str(answer["id"])} if "id" in answer else {}),
        "prompt": messages,
        "completion": [said],
        "tokens": {
            "prompt_ids": {"prompt_token_ids": ids, **choice, **answer}[
                "prompt_token_ids"
            ],
            "completion_ids": choice.get("token_ids"),
            "completion_logprobs": listed,
        },
        "response": {"usage": answer.get("usage")},
    }


CHAT_COMPLETIONS = Format(
    name="requests and responses",
    framework="any; logs of servers",
    files=("*.jsonl",),
    keys=(
        ("response.choices", "response.body", "choices[].message", "choices[].text"),
    ),
    trajectories=read_calls,
)
RESPONSES = replace(
    CHAT_COMPLETIONS,
    name="requests and responses of messages, or of items",
    keys=(
        ("request.messages", "request.input"),
        ("response.content", "response.output"),
    ),
)

"""Logged calls of a server that speaks OpenAI's API: a request and its response.

A line is a call. Ids and log-probs are where vLLM writes them: `return_token_ids` puts
`prompt_token_ids` into the response and `token_ids` into a choice, `logprobs` a list of
objects (chat completions) or `token_logprobs` (completions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rounddiag.batch.content import as_json, is_empty
from rounddiag.batch.messages import messages_in, read_message
from rounddiag.batch.turns import GENERATED
from rounddiag.loaders.assembly.turns import AgentTurn, Transcript, call_of
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.outcome import outcome
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, records_in
from rounddiag.text.json_text import object_in, objects_in

_Record = Mapping[str, Any]
_IDS = ("prompt_token_ids", "token_ids", "log_probs")
_PROMPTS = ("messages", "prompt", "input")


def read_calls(root: JsonLines | Table, source: Source) -> Iterator[Transcript]:
    """Read calls; one whose messages begin with all of an earlier one follows it.

    What the records and requests of a trajectory agree about is a column of samples,
    the rest one of rounds.
    """
    transcripts: list[Transcript] = []
    ends: dict[tuple[str, ...], Transcript] = {}
    facts: list[tuple[Transcript, AgentTurn, dict[str, object]]] = []
    for record in records_in(root):
        asked, answer = (object_in(record.get(n)) for n in ("request", "response"))
        inner = answer if "choices" in answer else record
        given = {**record, **asked}
        prompt = next((given[name] for name in _PROMPTS if name in given), None)
        messages = messages_in(prompt)
        keys = [*map(_key, messages)]
        for choice in objects_in(inner.get("choices")):
            known = (tuple(keys[:size]) for size in range(len(keys), 0, -1))
            end = next((end for end in known if end in ends), ())
            transcript = ends.pop(end, None) or Transcript(file=source.path)
            transcripts += [] if end else [transcript]
            transcript.add_prompt(messages[len(end) :])
            turn = _add_choice(transcript, choice, inner, prompt)
            said = choice.get("message") or {"content": choice.get("text")}
            ends[(*keys, _key({**said, "role": GENERATED}))] = transcript
            row = transcript.plain(asked, *_PROMPTS, of="request")
            if inner is answer:
                row |= transcript.plain(record, *_PROMPTS, "request", "response")
            facts.append((transcript, turn, row))
    _share(facts)
    yield from transcripts


def _key(message: _Record) -> str:
    """Return what a message says; its thoughts are left out of later requests."""
    said = read_message(message)
    pieces = (piece for piece in said.pieces if piece.kind != "thought")
    return as_json([said.role, *map(repr, pieces)])


def _add_choice(
    transcript: Transcript, choice: _Record, answer: _Record, prompt: object
) -> AgentTurn:
    given = answer.get(_IDS[0], choice.get(_IDS[0], prompt))
    ids = {_IDS[0]: given, _IDS[1]: choice.get(_IDS[1])}
    ids[_IDS[2]] = _log_probs(object_in(choice.get("logprobs")))
    call = call_of(ids, *_IDS)
    lost = () if call is None else ("logprobs",) * (call[2] is not None)
    columns = {
        **transcript.plain(answer, *_OF_ANSWERS, of="response"),
        **transcript.plain(choice, *_OF_CHOICES, *lost, of="response.choices"),
        **transcript.plain(answer.get("usage"), of="response.usage"),
        **outcome(answer.get("usage"), num_generated="completion_tokens"),
    }
    if "id" in answer:
        columns["request_id"] = str(answer["id"])
    transcript.left_out |= {
        f"response.{name}"
        for name in (_IDS[0], f"choices.{_IDS[1]}")
        if call is None and not is_empty(ids[name.rpartition(".")[2]])
    }
    said = choice.get("message") or {"content": choice.get("text")}
    return transcript.add(said, GENERATED, call=call, columns=columns)


def _log_probs(values: _Record) -> object:
    tokens = objects_in(values.get("content"))
    listed = np.array([token.get("logprob", np.nan) for token in tokens], np.float64)
    return listed if len(tokens) else values.get("token_logprobs")


_OF_ANSWERS = (*_PROMPTS, "request", "response", "choices", "usage", "id", _IDS[0])
_OF_CHOICES = ("message", "text", "index", _IDS[0], _IDS[1])


def _share(facts: list[tuple[Transcript, AgentTurn, dict[str, object]]]) -> None:
    """Set columns of samples where each trajectory has one value, else of rounds."""
    values: dict[str, dict[int, set[object]]] = {}
    for transcript, _, row in facts:
        for name, value in row.items():
            values.setdefault(name, {}).setdefault(id(transcript), set()).add(value)
    shared = {
        n for n, each in values.items() if all(len(v) == 1 for v in each.values())
    }
    for transcript, turn, row in facts:
        for name, value in row.items():
            columns = transcript.columns if name in shared else turn.columns
            columns.setdefault(name, value)
        if isinstance(reward := row.get("reward"), int | float):
            transcript.columns["rewards"] = reward  # the last of its calls


CHAT_COMPLETIONS = Format(
    name="requests and responses",
    framework="any; vLLM, SGLang and other servers of OpenAI's API",
    files=("*.jsonl",),
    keys=(("response.choices", "choices[].message", "choices[].text"),),
    trajectories=read_calls,
)

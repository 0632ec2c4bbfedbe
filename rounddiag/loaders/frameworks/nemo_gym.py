"""Rollouts of NeMo Gym, in the layout of OpenAI's Responses API: `*rollouts.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rounddiag.batch.messages import messages_in
from rounddiag.batch.turns import GENERATED
from rounddiag.loaders.assembly.turns import Transcript, call_of
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.outcome import outcome
from rounddiag.loaders.source import Source
from rounddiag.text.json_text import object_in, objects_in

_IDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


def _read_rollouts(lines: JsonLines, _: Source) -> Iterator[Transcript]:
    """Read the rollouts of a file.

    A round is the reasoning, the text and the calls that the model wrote between two
    observations. The token ids of its call, if the model server returned them, end it.
    """
    for record in lines:
        response = object_in(record["response"])
        request = object_in(record["responses_create_params"])
        transcript = Transcript(
            file=record.source.path, names={str(response.get("id")): 0}
        )
        transcript.add_prompt(messages_in(request.get("input")))
        written: list[dict[str, Any]] = []
        for item in objects_in(response.get("output")):
            if not _is_written(item):
                _add_round(transcript, written)
                transcript.add(item)
                continue
            written.append(item)
            if call_of(item, *_IDS):
                _add_round(transcript, written)
        _add_round(transcript, written)
        transcript.columns = _columns(transcript, record)
        yield transcript


def _is_written(item: dict[str, Any]) -> bool:
    kind = str(item.get("type"))
    return (
        not kind.endswith("_output") and str(item.get("role", GENERATED)) == GENERATED
    )


def _add_round(transcript: Transcript, items: list[dict[str, Any]]) -> None:
    if not items:
        return
    calls = (call_of(item, *_IDS) for item in items)
    call = next(filter(None, calls), None)
    said = [{n: item[n] for n in item if n not in _IDS} for item in items]
    transcript.add({"output": said}, GENERATED, call=call)
    items.clear()


_OF_RECORDS = (
    *("reward", "_ng_task_index", "response", "responses_create_params", "agent_ref"),
)
_OF_RESPONSES = (*("model", "output", "usage", "error", "incomplete_details"),)


def _columns(transcript: Transcript, record: dict[str, Any]) -> dict[str, object]:
    columns = transcript.plain(record, *_OF_RECORDS)
    response = object_in(record["response"])
    transcript.leave_out(response, *_OF_RESPONSES, of="response")
    request = "responses_create_params"
    transcript.leave_out(record[request], "input", of=request)
    facts = {"model": response.get("model"), "rewards": record.get("reward")}
    facts |= {
        **transcript.described(record, "agent_ref", "name", column="agent"),
        **transcript.described(
            response, "incomplete_details", "reason", column="status", of="response"
        ),
        **transcript.described(response, "error", "message", of="response"),
    }
    usage = transcript.plain(response.get("usage"), of="response.usage")
    facts |= outcome(usage, num_generated="output_tokens")
    if (task := record.get("_ng_task_index")) is not None:
        facts["uid"] = str(task)
    known = {name: value for name, value in facts.items() if value is not None}
    return transcript.merge(row=columns, usage=usage, outcome=known)


NEMO_GYM = Format(
    name="rollouts",
    framework="NeMo Gym",
    files=("*rollouts.jsonl",),
    keys=("responses_create_params", "response"),
    trajectories=_read_rollouts,
    verified="the example rollouts of nemo-gym 0.4.0, written by its agents",
    in_parts=True,
)

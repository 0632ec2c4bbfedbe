"""Rollouts of NeMo Gym, in the layout of OpenAI's Responses API: `*rollouts.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rounddiag.batch.turns import GENERATED
from rounddiag.loaders.assembly.turns import (
    Transcript,
    call_of,
    messages_in,
    plain_values,
    stitch,
)
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines, object_in, objects_in
from rounddiag.loaders.source import Source

_IDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")


def _read_rollouts(lines: JsonLines, _: Source) -> Iterator[Transcript]:
    """Read the rollouts of a file.

    A round is the reasoning, the text and the calls that the model wrote between two
    observations. The token ids of its call, if the model server returned them, end it.
    """
    for record in lines:
        response = object_in(record["response"])
        request = object_in(record["responses_create_params"])
        one = Transcript(file=record.source.path, names={str(response.get("id")): 0})
        one.add_prompt(messages_in(request.get("input")))
        written: list[dict[str, Any]] = []
        for item in objects_in(response.get("output")):
            if not _is_written(item):
                _add_round(one, written)
                one.add(item)
                continue
            written.append(item)
            if call_of(item, *_IDS):
                _add_round(one, written)
        _add_round(one, written)
        stitch(one.turns)
        one.columns = _columns(record, response)
        yield one


def _is_written(item: dict[str, Any]) -> bool:
    kind = str(item.get("type"))
    return not kind.endswith("_output") and item.get("role", GENERATED) == GENERATED


def _add_round(one: Transcript, items: list[dict[str, Any]]) -> None:
    """Add what the model wrote in one call, and forget its items."""
    if not items:
        return
    call = next((found for item in items if (found := call_of(item, *_IDS))), None)
    columns = plain_values(items[-1], *items[-1].keys() - {"status"})
    one.add({"output": [*items]}, GENERATED, call=call, columns=columns)
    items.clear()


def _columns(record: dict[str, Any], response: dict[str, Any]) -> dict[str, object]:
    columns = plain_values(record, "reward", "_ng_task_index")
    if isinstance(agent := record.get("agent_ref"), dict):
        columns["agent"] = agent.get("name")
    facts = {"model": response.get("model"), "rewards": record.get("reward")}
    if isinstance(cut := response.get("incomplete_details"), dict):
        facts["status"] = cut.get("reason")
    if isinstance(error := response.get("error"), dict):
        facts["error"] = error.get("message")
    columns |= plain_values(response.get("usage"))
    if (task := record.get("_ng_task_index")) is not None:
        columns["uid"] = str(task)
    return {**columns, **{name: v for name, v in facts.items() if v is not None}}


NEMO_GYM = Format(
    name="rollouts",
    framework="NeMo Gym",
    files=("*rollouts.jsonl",),
    keys=("responses_create_params", "response"),
    trajectories=_read_rollouts,
    verified="the example rollouts of nemo-gym 0.4.0, written by its agents",
    in_parts=True,
)

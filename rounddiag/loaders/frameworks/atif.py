"""Trajectories in ATIF, which Harbor and others write: `trajectory.json`.

A Harbor job has one in each trial, `{trial}/agent/trajectory.json`; the reward and the
error of the trial are in files beside `agent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rounddiag.batch.turns import GENERATED
from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.turns import (
    Transcript,
    call_of,
    plain_values,
    stitch,
)
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines, object_in, objects_in, read_document
from rounddiag.loaders.source import Source, inside

_MOST_BYTES = 1 << 24  # of a trial's result, which is text
_NOT_ROUNDS = "agent without a model"  # ATIF's steps that no model wrote


def read_atif(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read a trajectory, and the sub-agents' that are in it.

    - A step of the agent is a round; one that a program decided
      (`llm_call_count` 0) or that is copied from another trajectory is not.
    - Its `metrics` may have the token ids of its call and their log-probs.
    - A file that a person wrote may lack the version.
    """
    known = "`schema_version` ATIF-v1.0 to ATIF-v1.8"
    for document in lines:
        version = document.get("schema_version")
        if not str(version).startswith("ATIF") and version is not None:
            raise _error(source, known, f"{version!r}")
        steps = objects_in(document.get("steps"))
        if version is None and not any(isinstance(s.get("source"), str) for s in steps):
            raise _error(source, "a `source` in the steps of ATIF", "steps without it")
        yield from _trajectories(document, source.path, _trial(source.path.parent))


def _error(source: Source, expected: str, found: str) -> LoadError:
    advice = "Save the trajectory with the program that wrote it."
    return source.error(expected=expected, found=f"{found:.40}", advice=advice)


def _trajectories(
    document: dict[str, Any], file: Path, trial: dict[str, object], parent: str = ""
) -> Iterator[Transcript]:
    own = plain_values(document)
    ids = [own.get(key) for key in ("trajectory_id", "session_id")]
    others = [parent] if parent else [file.stem, file.parent.name]
    ranked = [*enumerate([*ids, *others])]
    one = Transcript(
        file=file, names={str(name): rank for rank, name in reversed(ranked) if name}
    )
    agent = plain_values(document.get("agent"))
    facts = {"agent": agent.get("name"), "model": agent.get("model_name")}
    one.columns = {
        **{name: value for name, value in facts.items() if value},
        **plain_values(document, "schema_version", "notes", "continued_trajectory_ref"),
        **({"parent": parent} if parent else trial),
    }
    for step in objects_in(document.get("steps")):
        _add_step(one, step)
    stitch(one.turns)
    yield one
    name = min(one.names, key=one.names.__getitem__, default=file.stem)
    for part in objects_in(document.get("subagent_trajectories")):
        one.parts.add(str(part.get("trajectory_id")))
        yield from _trajectories(part, file, trial, name)


def _add_step(one: Transcript, step: dict[str, Any]) -> None:
    is_agent = step.get("source") == "agent"
    is_round = is_agent and not step.get("is_copied_context")
    is_round &= step.get("llm_call_count") != 0
    metrics = object_in(step.get("metrics"))
    role = GENERATED if is_round else _NOT_ROUNDS
    one.add(
        {**step, "content": step.get("message")},
        role if is_agent else str(step.get("source")),
        call=call_of(metrics, "prompt_token_ids", "completion_token_ids", "logprobs"),
        columns=plain_values({**metrics, **step}, "source", "message", *_THOUGHT)
        if is_round
        else {},
    )
    for result in objects_in(object_in(step.get("observation")).get("results")):
        one.add({"content": result.get("content")}, "tool" if is_agent else "user")
        for part in objects_in(result.get("subagent_trajectory_ref")):
            path = one.file.parent / str(part.get("trajectory_path"))
            one.parts |= {str(path), str(part.get("trajectory_id"))}


_THOUGHT = ("reasoning_content", "is_copied_context")


def _trial(folder: Path) -> dict[str, object]:
    """Return what Harbor recorded of the trial of a trajectory: reward, task, error."""
    if folder.name != "agent":
        return {}
    result = _read(folder.parent, "result.json") or {}
    rewards = object_in(result.get("verifier_result")).get("rewards")
    failed = result.get("exception_info")
    columns: dict[str, object] = plain_values(
        result, "id", "trial_uri", "task_checksum"
    )
    columns.pop("schema_version", None)
    if isinstance(rewards, dict):
        named = plain_values(rewards)
        first = named.pop("reward", None) if "reward" in named else None
        if first is None and len(named) == 1:
            first = named.popitem()[1]
        columns |= {"rewards": first, **{f"reward.{k}": v for k, v in named.items()}}
    if isinstance(failed, dict):
        columns["error"] = (
            f"{failed.get('exception_type')}: {failed.get('exception_message')}"
        )
    if "task_name" in columns:
        columns["uid"] = columns["task_name"]
    return columns


def _read(folder: Path, name: str) -> dict[str, Any] | None:
    try:
        file = inside(folder, name, most_bytes=_MOST_BYTES)
    except LoadError:
        return None
    return read_document(Source.of_file(file))


ATIF = Format(
    name="ATIF trajectories",
    framework="Harbor, NeMo Gym",
    files=("trajectory*.json",),
    keys=("schema_version", "steps"),
    trajectories=read_atif,
    verified="written by the models of harbor 0.26.0, in ATIF 1.7 and 1.8",
    in_parts=True,
)
UNVERSIONED = replace(
    ATIF,
    name="ATIF trajectories without a version",
    framework="any",
    keys=("agent", "steps"),
    verified="",
)

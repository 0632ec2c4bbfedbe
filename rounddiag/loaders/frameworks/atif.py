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
from rounddiag.loaders.assembly.turns import Transcript, call_of, plain_values
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines, read_document
from rounddiag.loaders.outcome import outcome, seconds_between
from rounddiag.loaders.source import Source, inside
from rounddiag.schema import ERROR
from rounddiag.text.json_text import object_in, objects_in

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
        trial = Transcript(file=source.path)
        _add_trial(trial)
        yield from _trajectories(document, trial)


def _error(source: Source, expected: str, content: str) -> LoadError:
    advice = "Save the trajectory with the program that wrote it."
    return source.error(expected=expected, found=f"{content:.40}", advice=advice)


def _trajectories(
    document: dict[str, Any], trial: Transcript, parent: str = ""
) -> Iterator[Transcript]:
    file = trial.file
    ids = [plain_values(document).get(key) for key in ("trajectory_id", "session_id")]
    others = [parent] if parent else [file.stem, file.parent.name]
    ranked = [*enumerate([*ids, *others])]
    transcript = Transcript(
        file=file, names={str(name): rank for rank, name in reversed(ranked) if name}
    )
    transcript.left_out |= trial.left_out
    agent = transcript.plain(document.get("agent"), of="agent")
    totals = transcript.plain(document.get("final_metrics"), of="final_metrics")
    transcript.columns = transcript.merge(
        agent={_AGENT.get(name, f"agent.{name}"): v for name, v in agent.items()},
        document=transcript.plain(document, "schema_version", *_INNER),
        final_metrics=totals,
        outcome=outcome(
            totals, num_generated="total_completion_tokens", cost=_TOTAL_COST
        ),
        trial={"parent": parent} if parent else trial.columns,
    )
    for step in objects_in(document.get("steps")):
        _add_step(transcript, step)
    yield transcript
    name = min(transcript.names, key=transcript.names.__getitem__, default=file.stem)
    for part in objects_in(document.get("subagent_trajectories")):
        transcript.parts.add(str(part.get("trajectory_id")))
        yield from _trajectories(part, trial, name)


def _add_step(transcript: Transcript, step: dict[str, Any]) -> None:
    is_agent = step.get("source") == "agent"
    is_round = is_agent and step.get("is_copied_context") is not True
    is_round &= str(step.get("llm_call_count")) != "0"
    used = _OF_STEPS if is_round else (*_OF_STEPS, *_NOT_WRITTEN)
    metrics = object_in(step.get("metrics"))
    role = GENERATED if is_round else _NOT_ROUNDS
    others = transcript.merge(
        metrics=transcript.plain(metrics, *_IDS, of="steps.metrics"),
        steps=transcript.plain(step, *used, *_SAID, of="steps"),
    )
    said = {name: step[name] for name in _SAID if name in step}
    transcript.add(
        {"content": step.get("message"), **said},
        role if is_agent else str(step.get("source")),
        call=call_of(metrics, *_IDS),
        columns=transcript.merge(
            steps=others,
            outcome=outcome(others, num_generated="completion_tokens", cost="cost_usd"),
        ),
    )
    observation = object_in(step.get("observation"))
    transcript.leave_out(observation, "results", of="steps.observation")
    for result in objects_in(observation.get("results")):
        said = {name: value for name, value in result.items() if name != _PARTS}
        transcript.add(said, "tool" if is_agent else "user")
        for part in objects_in(result.get(_PARTS)):
            path = transcript.file.parent / str(part.get("trajectory_path"))
            transcript.parts |= {str(path), str(part.get("trajectory_id"))}


_INNER = ("agent", "steps", "final_metrics", "subagent_trajectories")
_AGENT = {"name": "agent", "model_name": "model"}
_TOTAL_COST = "total_cost_usd"
_SAID = ("reasoning_content", "tool_calls")
_OF_STEPS = ("source", "step_id", "message", "observation", "metrics")
_NOT_WRITTEN = ("llm_call_count", "is_copied_context")
_IDS = ("prompt_token_ids", "completion_token_ids", "logprobs")
_PARTS = "subagent_trajectory_ref"


def _add_trial(transcript: Transcript) -> None:
    folder = transcript.file.parent
    if folder.name != "agent":
        return
    result = _read(folder.parent, "result.json") or {}
    verified = object_in(result.get("verifier_result"))
    rewards = verified.get("rewards")
    own = transcript.plain(result, *_OF_TRIALS, of="result.json")
    used = object_in(result.get("agent_result"))
    columns = {
        **seconds_between(result.get("started_at"), result.get("finished_at")),
        **outcome(used, num_generated="n_output_tokens", cost="cost_usd"),
    }
    transcript.leave_out(verified, "rewards", of="verifier_result")
    if isinstance(rewards, dict):
        named = transcript.plain(rewards, of="verifier_result.rewards")
        first = named.pop("reward", None) if "reward" in named else None
        if first is None and len(named) == 1:
            first = named.popitem()[1]
        columns |= {"rewards": first, **{f"reward.{k}": v for k, v in named.items()}}
    parts = ("exception_type", "exception_message")
    columns |= transcript.described(result, "exception_info", *parts, column=ERROR.name)
    if "task_name" in own:
        columns["uid"] = own["task_name"]
    given = transcript.plain(used, "n_output_tokens", "cost_usd", of="agent_result")
    transcript.columns = transcript.merge(
        result=own, agent_result=given, outcome=columns
    )


_OF_TRIALS = ("schema_version", "agent_result", "verifier_result", "exception_info")


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

"""Checkpoints of AndroidWorld, `TASK_0.pkl.gz`: a gzipped pickle of episodes.

It is read as plain data; no code runs. Screenshots are arrays, unpacked into memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rounddiag.batch.content import as_json
from rounddiag.batch.turns import GENERATED
from rounddiag.loaders.assembly.turns import Transcript
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.outcome import outcome
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.loaders.source import Source
from rounddiag.loaders.stored import scalar_value
from rounddiag.text.json_text import object_in

# Of a step of M3A, T3A or SeeAct: what the model read, saw and wrote, in this order.
_READ = ("action_prompt",)
_SEEN = (
    *("raw_screenshot", "before_screenshot", "before_screenshot_with_som"),
    "screenshot",
)
_WRITTEN = ("action_output", "action_gen_response", "action_ground_response")
_ACTION = re.compile(r"Action:\s*(.+)", re.DOTALL)
_DATA = "episode_data"


def read_checkpoint(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read episodes; a round is the model's choice of an action.

    The summary of a step, which the model writes in a call of its own, is a column.
    """
    for record in lines:
        episode = {name: scalar_value(value) for name, value in record.items()}
        task, number = episode.get("task_template"), episode.get("instance_id")
        name = f"{task}_{number}"
        transcript = Transcript(file=source.path, names={name: 0})
        data = object_in(episode.get(_DATA))
        rows = {key: _items(row) for key, row in data.items()}
        others = {key: value for key, value in data.items() if not rows[key]}
        transcript.leave_out(others, of=_DATA)
        for index in range(max(map(len, rows.values()), default=0)):
            _add_step(
                transcript,
                {key: row[index] for key, row in rows.items() if index < len(row)},
            )
        screen = transcript.named(episode.get("screen_config"), of="screen_config")
        transcript.columns = transcript.merge(
            episode=transcript.plain(episode, _DATA, "is_successful", "screen_config"),
            screen=screen,
            outcome={
                **outcome(episode, seconds="run_time", error="exception_info"),
                "rewards": episode.get("is_successful"),
                "uid": name,
            },
        )
        yield transcript


def _items(values: object) -> list[Any]:
    if isinstance(values, np.ndarray):  # of numbers
        return list(values.tolist())
    return [*map(scalar_value, values)] if isinstance(values, list) else []


def _add_step(transcript: Transcript, step: Mapping[str, Any]) -> None:
    texts = [step[name] for name in _READ if isinstance(step.get(name), str)]
    seen = transcript.add({"role": "user", "content": texts})
    seen.images += transcript.pictures(
        *(step[n] for n in _SEEN if step.get(n) is not None)
    )
    written = [step[name] for name in _WRITTEN if isinstance(step.get(name), str)]
    used = (*_READ, *_SEEN, *_WRITTEN, "action")
    if not written:
        transcript.leave_out(step, *used, of=_DATA)
        return
    columns = transcript.plain(step, *used, of=_DATA)
    turn = transcript.add({"content": written}, GENERATED, columns=columns)
    chosen = _fields(step.get("action"))
    named = _ACTION.search(written[-1])
    if chosen:
        turn.action = as_json(chosen)
    elif named:
        turn.action = named[1].strip()


def _fields(action: object) -> dict[str, Any]:
    state = object_in(action.state if isinstance(action, Node) else action)
    return {name: value for name, value in state.items() if value is not None}


ANDROID_WORLD = Format(
    name="checkpoints of episodes",
    framework="AndroidWorld",
    files=("[A-Z]*_[0-9]*.pkl.gz",),
    keys=("episode_data", "goal", "task_template"),
    trajectories=read_checkpoint,
    in_parts=True,
)

"""Writes trace annotations and episodes as prime-rl does, laid out from its source."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def node(
    parent: int | None, ids: list[int], mask: list[bool], *log_probs: float
) -> Record:
    more = {"logprobs": [*log_probs]} if log_probs else {}
    message = {"role": "assistant" if log_probs else "user", "content": "x"}
    known = {"parent": parent, "message": message, "token_ids": ids, "mask": mask}
    return {**known, **more}


def episode() -> Record:
    """Two branches of one prompt: the second leaves after the first answer."""
    nodes = [
        node(None, [1, 2], [False, False]),
        node(0, [3, 10, 11], [False, True, True], -0.5, -1.0),
        node(1, [4, 12], [False, True], -2.0),
        node(1, [5, 13], [False, True], -3.0),
    ]
    rewards = {"a": {"score": 1.0, "weight": 0.5}, "b": {"score": 2.0, "weight": 1.0}}
    trace = {"id": "t1", "rewards": rewards, "nodes": nodes}
    work = {"type": "train", "step": 4, "policy": {"start": 2, "end": 3}}
    run = {"type": "train", "id": "r", "work": work}
    known = {"id": "e1", "env": {"id": "gui"}, "task": {}, "run": run}
    return {**known, "traces": [trace]}


def update(index: int, old: list[float | None], **more: Any) -> Record:
    branch = {"index": index, "trainer_logprobs": old, **more}
    return {"version": 1, "trace_id": "t1", "info": {}, "branches": [branch]}


def updates() -> list[Record]:
    none = [None] * 3
    return [
        update(
            0,
            [*none, -0.75, -1.0, None, None],
            entropies=[*none, 0.5, 0.25, None, 0.125],
            is_masked=[*none, False, True, None, False],
        ),
        update(1, [*none, None, None, None, -9.0]),
        update(1, [*none, None, None, None, -3.5]),
    ]


def write(folder: Path, records: list[Record]) -> Path:
    traces = folder / "monitors" / "file" / "traces"
    ship = {"version": 1, "trace_id": "t1", "info": {"ship": {"step": 4}}}
    files = {
        "stream": [{**episode(), "id": "e0", "traces": []}, episode()],
        "annotations/orch": [{**ship, "branches": []}],
        "annotations/trainer": records,
    }
    for name, rows in files.items():
        (traces / name).mkdir(parents=True)
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (traces / name / "00000.jsonl").write_text(text)
    return traces / "annotations" / "trainer" / "00000.jsonl"

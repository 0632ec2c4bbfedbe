"""Runs of OSWorld and of what grew from it: `traj.jsonl`, and its PNGs beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from math import nan
from pathlib import Path
from typing import Any

from rounddiag.batch.content import as_json
from rounddiag.batch.turns import GENERATED
from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.turns import AgentTurn, Transcript
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.outcome import outcome
from rounddiag.loaders.source import Source, inside
from rounddiag.schema import SECONDS
from rounddiag.wording import by_numbers

_FIRST = re.compile(r"(step_0([_.].*)?|initial.*)\.(png|jpe?g)")
_RECORDING, _RESULT = "recording.mp4", "result.txt"
_MOST_BYTES = 1 << 12  # of a result, which is one number
_WRITTEN = ("raw_response", "thought", "reasoning", "content", "text", "action")


def read_run(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read the run of one task.

    - A round is one answer of the model. Each of its actions has a row of its own, with
      the screenshot after it.
    - The reward is the number in `result.txt`. `recording.mp4` is named, not opened.
    """
    folder = source.path.parent
    transcript = Transcript(file=source.path, names={folder.name: 0})
    instruction = _text(lines.first.get("instruction"))
    transcript.turns.append(AgentTurn(role="user", text=instruction))
    for name in sorted(_listed(folder), key=by_numbers):
        if _FIRST.fullmatch(name):
            transcript.turns[0].images += transcript.pictures(name)
    last: tuple[object, object] | None = None
    for record in lines:
        if "Error" in record:
            transcript.columns["error"] = str(record["Error"])
            transcript.leave_out(record, "Error", of="rows")
            continue
        answer = (record.get("step_num"), str(record.get("response")))
        if answer != last or record.get("response") is None:
            _add_answer(transcript, record)
        else:
            turn = transcript.rounds[-1]
            turn.action = f"{turn.action}\n{_text(record.get('action'))}"
            columns = _round_columns(transcript, record)
            turn.columns = transcript.merge(rows=turn.columns, last=columns)
        last = answer
        _add_observation(transcript, record)
    transcript.columns |= _sample_columns(folder)
    yield transcript


def _listed(folder: Path) -> list[str]:
    with suppress(OSError):
        return [file.name for file in folder.iterdir()]
    return []


def _add_answer(transcript: Transcript, record: dict[str, Any]) -> None:
    action = _text(record.get("action"))
    text = _answer(record.get("response")) or action
    transcript.turns.append(
        AgentTurn(
            role=GENERATED,
            text=text,
            action=action,
            columns=_round_columns(transcript, record),
        )
    )


def _answer(response: object) -> str:
    """Return the text that the model wrote; agents save it under several names."""
    if isinstance(response, dict):
        parts = [response.get(name) for name in _WRITTEN]
        raw, *others = (part if isinstance(part, str) else None for part in parts)
        return raw or "\n".join(part for part in others if part)
    return _text(response)


def _text(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    items = value if isinstance(value, list) else [value]
    return "\n".join(
        as_json(item) if isinstance(item, dict) else str(item) for item in items
    )


def _round_columns(transcript: Transcript, record: dict[str, Any]) -> dict[str, object]:
    columns = transcript.plain(record, *_READ)
    response = record.get("response")
    if isinstance(response, dict):
        texts = [name for name in _WRITTEN if isinstance(response.get(name), str)]
        # A raw response repeats the parts of it.
        used = texts[:1] if response.get(_WRITTEN[0]) else texts
        columns |= transcript.named(response, *used, of="response")
    info = record.get("info")
    return transcript.merge(
        row=columns,
        time=_seconds(transcript, record),
        info=transcript.named(info, of="info"),
        outcome=outcome(info, status="status", error="error"),
    )


def _seconds(transcript: Transcript, record: dict[str, Any]) -> dict[str, object]:
    """Return the seconds since the action of the round before."""
    if _TIME not in record:
        return {}
    columns = [*(turn.columns for turn in transcript.rounds[-1:]), record]
    seconds = nan
    with suppress(ValueError):
        times = [datetime.strptime(str(c.get(_TIME)), _CLOCK) for c in columns]  # noqa: DTZ007 as written
        before, now = times
        seconds = (now - before).total_seconds()
    return {SECONDS.name: seconds}


_TIME, _CLOCK = "action_timestamp", "%Y%m%d@%H%M%S"
_READ = ("action", "response", "instruction", "screenshot_file", "info")


def _add_observation(transcript: Transcript, record: dict[str, Any]) -> None:
    turn = AgentTurn(role="user")
    name = record.get("screenshot_file")
    if isinstance(name, str):
        turn.images += transcript.pictures(name)
    if transcript.turns[-1].is_round:
        transcript.turns.append(turn)
    else:
        transcript.turns[-1].images += turn.images


def _sample_columns(folder: Path) -> dict[str, object]:
    domain = folder.parent.name  # DOMAIN/TASK/traj.jsonl
    columns: dict[str, object] = {"domain": domain} if domain else {}
    with suppress(LoadError):
        inside(folder, _RECORDING)
        columns["recording"] = _RECORDING
    with suppress(LoadError, ValueError):
        file = inside(folder, _RESULT, most_bytes=_MOST_BYTES)
        columns["rewards"] = float(Source.of_file(file).whole().read())
    return columns


OSWORLD = Format(
    name="a run: actions, screenshots beside them, `result.txt`",
    framework="OSWorld",
    files=("traj.jsonl",),
    keys=("step_num", "action", "screenshot_file"),
    trajectories=read_run,
    in_parts=True,
)

"""Trajectories of OpenPipe ART: `trajectories/train/0007.parquet`, older ones `.jsonl`.

A line of JSON is a group of trajectories; a row of Parquet is a trajectory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rounddiag.batch.content import MARKS
from rounddiag.loaders.assembly.turns import Transcript
from rounddiag.loaders.format import Format
from rounddiag.loaders.frameworks.conversations import parsed
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.outcome import outcome
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, records_in
from rounddiag.text.json_text import object_in, objects_in

_Record = Mapping[str, Any]
# Of a trajectory, of which the weights have two versions.
_INNER = ("messages_and_choices", "messages", "additional_histories", "group_index")
_OF_GROUPS = ("trajectories", "metadata", "metrics")
_RECORDS = ("metrics", "metadata", "group_metadata", "group_metrics")
_VERSIONS = {
    "initial_policy_version": "min_weight_version",
    "final_policy_version": "max_weight_version",
}


def read_groups(lines: JsonLines, source: Source) -> Iterator[Transcript]:
    """Read the trajectories of groups; a choice of the server is a round.

    Further histories of a trajectory have contexts of their own: each is a sample, with
    the column `history`.
    """
    for number, group in enumerate(lines):
        others = {f"group_{name}": group.get(name) for name in ("metadata", "metrics")}
        for record in objects_in(group.get("trajectories")):
            for transcript in _trajectories({**record, **others}, source, number):
                transcript.leave_out(group, *_OF_GROUPS, of="group")
                yield transcript


def read_rows(root: JsonLines | Table, source: Source) -> Iterator[Transcript]:
    """Read a table with a row per trajectory, its messages marked as trainable."""
    for record in records_in(root):
        yield from _trajectories(record, source, record.get("group_index"))


def _trajectories(
    record: _Record, source: Source, group: object
) -> Iterator[Transcript]:
    histories = [record, *objects_in(parsed(record.get("additional_histories")))]
    for number, history in enumerate(histories):
        transcript = Transcript(file=source.path)
        if number:
            transcript.leave_out(history, *_INNER, "tools", of="additional_histories")
        messages = history.get("messages_and_choices", history.get("messages"))
        for message in objects_in(messages):
            _add_message(transcript, message)
        facts = {
            **({"history": number} if len(histories) > 1 else {}),
            "rewards": record.get("reward"),
            "uid": f"group {group}",
        }
        parts: dict[str, dict[str, object]] = {}
        for name in _RECORDS:
            values = transcript.plain(parsed(record.get(name)), of=name)
            prefix = "group_" if name.startswith("group") else ""
            parts[name] = {f"{prefix}{key}": v for key, v in values.items()}
            facts |= outcome(values, seconds="duration")
        own = transcript.plain(record, *_INNER, *_RECORDS, "reward", "tools")
        facts |= {
            ours: own.pop(theirs) for theirs, ours in _VERSIONS.items() if theirs in own
        }
        transcript.columns = transcript.merge(row=own, **parts, outcome=facts)
        transcript.plain({"tools": parsed(history.get("tools"))})
        if source.path.stem.isdecimal():
            transcript.columns.setdefault("step", int(source.path.stem))
        yield transcript


def _add_message(transcript: Transcript, message: _Record) -> None:
    """Add a message that the model read, or a choice, which it wrote."""
    said = {**message, **(inner := object_in(message.get("message")))}
    transcript.merge(messages_and_choices=message, message=inner)
    marks = message.keys() & MARKS - {"index"} if inner else set()
    transcript.left_out |= {f"messages_and_choices.{name}" for name in marks}
    is_choice = said.pop("message", None) is not None
    if said.pop("trainable", is_choice):
        transcript.add_written([said])
    else:
        transcript.add_prompt([said])


ART_GROUPS = Format(
    name="groups of trajectories",
    framework="OpenPipe ART",
    files=("trajectories/*/[0-9]*.jsonl",),
    keys=("trajectories[].messages_and_choices",),
    trajectories=read_groups,
    verified="written by openpipe-art 0.5.18",
)
ART_ROWS = replace(
    ART_GROUPS,
    name="trajectories",
    files=("trajectories/*/[0-9]*.parquet",),
    keys=("group_index", "reward", "messages"),
    trajectories=read_rows,
)

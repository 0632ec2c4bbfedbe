"""Logs of Inspect, `*.eval`: a zip with one JSON document per sample."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rounddiag.batch.content import is_empty
from rounddiag.batch.messages import messages_in
from rounddiag.columns.column import are_same
from rounddiag.loaders.assembly.turns import Transcript
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import read_document
from rounddiag.loaders.outcome import outcome
from rounddiag.loaders.packed import unpack
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import LazyFields
from rounddiag.loaders.torch_file import data_start, open_zip
from rounddiag.text.json_text import object_in, objects_in

_ZSTD = 93  # the number of a zip's method
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # Inspect's values of these letters


def read_log(_: object, source: Source) -> Iterator[Transcript]:
    """Read the samples of a log; the reward is the first score that is a number."""
    with open_zip(source.whole()) as archive:
        entries = [
            entry
            for entry in archive.infolist()
            if entry.filename.startswith("samples/")
        ]
        for entry in entries:
            document = read_document(_unpacked(archive, entry, source))
            yield _sample(document, source)


def _unpacked(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, source: Source
) -> Source:
    if entry.compress_type != _ZSTD:  # which zipfile knows from Python 3.14
        return source.of_bytes(archive.read(entry))
    whole = source.whole()
    with whole.open() as stream:
        start = data_start(stream, entry)
    return unpack(source.of_bytes(whole.part(start, entry.compress_size).read()))


def _sample(document: dict[str, Any], source: Source) -> Transcript:
    name, epoch = str(document.get("id")), document.get("epoch")
    transcript = Transcript(file=source.path, names={f"{name}_epoch_{epoch}": 0})
    attached = LazyFields.watch(object_in(document.get("attachments")))
    calls = _calls(document)
    messages = messages_in(document.get("messages"))
    for message in messages or messages_in(document.get("input")):
        said = {n: v for n, v in _resolved(message, attached).items() if n not in _USED}
        is_given = message.get("source") == "input"
        add = transcript.add_prompt if is_given else transcript.add_written
        add([said])
        turn = transcript.turns[-1]
        if turn.is_round and (call := calls.get(str(message.get("id")))):
            turn.columns |= call
    output = object_in(document.get("output"))
    choices = objects_in(output.get("choices"))
    used = object_in(document.get("model_usage"))
    facts: dict[str, object] = {
        "uid": name,
        **outcome(next(iter(choices), None), status="stop_reason"),
        **outcome(document, seconds="total_time"),
        **_usage(used.values()),
        **transcript.described(document, "error", "message"),
        **transcript.described(document, "limit", "type"),
    }
    _add_scores(transcript, facts, object_in(document.get("scores")))
    transcript.columns = transcript.merge(
        sample=transcript.plain(document, *_OF_SAMPLES),
        output=transcript.plain(output, "completion", "choices", "usage", of="output"),
        outcome=facts,
    )
    for usage in (output.get("usage"), *used.values()):
        transcript.leave_out(usage, "output_tokens", "total_cost", of="usage")
    models = [name for name in used if isinstance(used[name], dict)]
    transcript.leave_out(used, *models, of="model_usage")
    for choice in choices:
        transcript.leave_out(choice, "message", "stop_reason", of="output.choices")
        again = object_in(choice.get("message"))
        known = next((m for m in messages if m.get("id") == again.get("id")), {})
        transcript.left_out |= {
            f"output.choices.message.{name}"
            for name, value in again.items()
            if not are_same(value, known.get(name))
        }
    if attached.left_out:
        transcript.left_out.add("attachments")
    if any(message not in messages for message in objects_in(document.get("input"))):
        transcript.left_out.add("input")
    return transcript


_USED = ("source", "function")  # of a message: who wrote it, and the tool of a result
_OF_SAMPLES = (
    *("input", "id", "messages", "output", "scores", "error", "limit", "attachments"),
    "model_usage",
)


def _calls(document: dict[str, Any]) -> dict[str, dict[str, object]]:
    calls: dict[str, dict[str, object]] = {}
    for event in objects_in(document.get("events")):
        output = object_in(event.get("output"))
        facts = {
            **outcome(output, seconds="time", error="error"),
            **_usage([output.get("usage")]),
        }
        for choice in objects_in(output.get("choices")):
            ended = outcome(choice, status="stop_reason")
            name = object_in(choice.get("message")).get("id")
            calls[str(name)] = {**ended, **facts}
    return calls


def _usage(usages: Iterable[object]) -> dict[str, object]:
    known = [*map(object_in, usages)]
    totals: dict[str, object] = {}
    for name, theirs in (("num_generated", "output_tokens"), ("cost", "total_cost")):
        values = [u[theirs] for u in known if isinstance(u.get(theirs), int | float)]
        totals |= {name: sum(values)} if values else {}
    return totals


def _add_scores(
    transcript: Transcript, columns: dict[str, object], scores: dict[str, Any]
) -> None:
    """Add the values of the scores, and their texts; the first number is the reward."""
    for scorer, score in scores.items():
        place = (
            f"scores.{scorer}.value" if isinstance(score, dict) else f"scores.{scorer}"
        )
        value = score.get("value") if isinstance(score, dict) else score
        texts = transcript.plain(score, "value", of=f"scores.{scorer}")
        columns |= {f"score.{scorer}.{key}": text for key, text in texts.items()}
        if isinstance(value, str | int | float):
            columns[f"score.{scorer}"] = value
            number = _GRADES.get(value, value) if isinstance(value, str) else value
            if isinstance(number, int | float):
                columns.setdefault("rewards", number)
        elif not is_empty(value):
            transcript.left_out.add(place)


def _resolved(value: Any, attached: Mapping[str, Any]) -> Any:  # noqa: ANN401 any JSON
    if isinstance(value, str):
        return attached.get(value.removeprefix(_ATTACHED), value)
    if isinstance(value, dict):
        return {key: _resolved(item, attached) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, attached) for item in value]
    return value


_ATTACHED = "attachment://"


INSPECT = Format(
    name="logs",
    framework="Inspect",
    files=("*.eval",),
    keys=("_journal/start.json",),
    trajectories=read_log,
    verified="written by inspect-ai 0.3.285",
    in_parts=True,
)

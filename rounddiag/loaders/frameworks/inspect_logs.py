"""Logs of Inspect, `*.eval`: a zip with one JSON document per sample."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from typing import Any

from rounddiag.loaders.assembly.turns import (
    Transcript,
    messages_in,
    plain_values,
)
from rounddiag.loaders.format import Format
from rounddiag.loaders.json_lines import object_in, objects_in, read_document
from rounddiag.loaders.source import Source
from rounddiag.loaders.torch_file import data_start, open_zip

_ZSTD = 93  # the number of a zip's method
_MOST_BYTES = 1 << 29  # of a sample, unpacked
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}  # Inspect's values of these letters


def read_log(_: object, source: Source) -> Iterator[Transcript]:
    """Read the samples of a log; the reward is the first score that is a number."""
    with open_zip(source.whole()) as archive:
        entries = [
            one for one in archive.infolist() if one.filename.startswith("samples/")
        ]
        for entry in entries:
            data = _unpacked(archive, entry, source)
            yield _sample(read_document(source.of_bytes(data)), source)


def _unpacked(
    archive: zipfile.ZipFile, entry: zipfile.ZipInfo, source: Source
) -> bytes:
    if entry.compress_type == _ZSTD:  # which zipfile knows from Python 3.14
        import pyarrow as pa

        whole = source.whole()
        with whole.open() as stream:
            start = data_start(stream, entry)
        packed = whole.part(start, entry.compress_size).read()
        with pa.CompressedInputStream(io.BytesIO(packed), "zstd") as unpacked:
            data = unpacked.read(_MOST_BYTES + 1)
    else:
        with archive.open(entry) as unpacked:
            data = unpacked.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise source.error(
            expected=f"samples of at most {_MOST_BYTES:,} bytes",
            found=f"a longer one, {entry.filename!r:.60}",
            advice="Read the log with Inspect, and save a part of it.",
        )
    return bytes(data)


def _sample(document: dict[str, Any], source: Source) -> Transcript:
    name, epoch = str(document.get("id")), document.get("epoch")
    one = Transcript(file=source.path, names={f"{name}_epoch_{epoch}": 0})
    attached = object_in(document.get("attachments"))
    messages = messages_in(document.get("messages"))
    for message in messages or messages_in(document.get("input")):
        is_given = message.get("source") == "input"
        add = one.add_prompt if is_given else one.add_written
        add([_resolved(message, attached)])
    one.columns = {**plain_values(document, "input", "id"), "uid": name}
    output = document.get("output")
    if isinstance(output, dict):
        reasons = (
            choice.get("stop_reason") for choice in objects_in(output.get("choices"))
        )
        one.columns |= {
            "status": next(reasons, None),
            **plain_values(output, "completion"),
        }
    for field, inner in (("error", "message"), ("limit", "type")):
        if isinstance(part := document.get(field), dict):
            one.columns[field] = str(part.get(inner))
    for scorer, score in object_in(document.get("scores")).items():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, str | int | float):
            one.columns[f"score.{scorer}"] = value
            number = _GRADES.get(value, value) if isinstance(value, str) else value
            if isinstance(number, int | float):
                one.columns.setdefault("rewards", number)
    return one


def _resolved(value: Any, attached: dict[str, Any]) -> Any:  # noqa: ANN401 any JSON
    """Return a value with the attachments that it refers to in their places."""
    if isinstance(value, str):
        return attached.get(value.removeprefix(_ATTACHED), value)
    if isinstance(value, dict):
        return {key: _resolved(one, attached) for key, one in value.items()}
    if isinstance(value, list):
        return [_resolved(one, attached) for one in value]
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

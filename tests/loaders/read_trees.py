"""Objects of a file between its bytes and a batch: where they are, and one changed.

JSON and pickles are changed where the reader has parsed them, so that a pickle can have
values that no writer made. A table is changed as rows, and written again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import rounddiag as rd
from rounddiag.batch.content import MARKS
from rounddiag.loaders import json_lines
from rounddiag.loaders.frameworks import martingale
from rounddiag.loaders.pickle.placeholders import Node
from rounddiag.loaders.pickle.unpickler import PickleMachine
from rounddiag.text import json_text

Path_ = tuple[Any, ...]
Place = tuple[object, Path_]  # which of the trees that are read, and where in it
# A message, block or call has one of these; plain marks of it say how it is read.
OF_MESSAGES = {
    *("type", "role", "content", "function", "tool_call_id", "toolUseId", "call_id"),
    *("function_name", "toolName", "toolCallId", "args", "object"),
}
# Objects of torch, numpy and tensordict say how a value is stored; of these, the
# entries of a TensorDict and the items of an array of objects are the writer's.
_INTERNAL = re.compile(
    r"torch|numpy|tensordict|decimal|datetime|pathlib|uuid|skyrl|PIL"
)
_ENTRIES = {"_tensordict", "batch_dict", "metadata", "data"}
_STORED = {"dtype", "shape", "type_sizes"}  # keys of a tensor's parts, of old files


def _parts(value: object) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    elif isinstance(value, Node):
        yield from (("args", value.args), ("state", value.state))


def objects(
    value: Any, path: Path_ = (), *, is_internal: bool = False
) -> Iterator[Path_]:
    """Yield where the objects of a value are that its writer filled."""
    if isinstance(value, Node) and _INTERNAL.match(value.name):
        is_internal = True
    if isinstance(value, dict):
        if "non_tensordict" in value:
            inner = (*path, "non_tensordict", "data")
            yield from objects(value["non_tensordict"].get("data"), inner)
            return
        is_tensor = "batch_dict" in path and "format" in value
        if _STORED & value.keys() or is_tensor or value.get("is_padding"):
            return
        is_internal = is_internal and path[-1] not in _ENTRIES
        if not is_internal:
            yield path
    if isinstance(value, list) and path and path[-1] == 4:  # of an array
        is_internal = False
    for name, part in _parts(value):
        yield from objects(part, (*path, name), is_internal=is_internal)


def at(value: Any, path: Path_) -> Any:
    for name in path:
        value = getattr(value, name) if isinstance(value, Node) else value[name]
    return value


@contextmanager
def trees_read(visit: Callable[[object, Any], object]) -> Iterator[None]:
    """Show every tree of JSON or of a pickle that is read, and which it is."""
    parse, run = json_text.parse_json, PickleMachine.run

    def parse_json(text: Any, *shape: Any, **options: Any) -> Any:
        value = parse(text, *shape, **options)
        visit(text, value)
        return value

    def run_pickle(machine: PickleMachine) -> object:
        span = machine.span
        name = (str(span.source.path), span.start, machine.stream.tell())
        value = run(machine)
        visit(name, value)
        return value

    with (
        patch.object(json_lines, "parse_json", parse_json),
        patch.object(martingale, "parse_json", parse_json),
        patch.object(PickleMachine, "run", run_pickle),
    ):
        yield


def _alike(where: Path_, root: Any) -> list[dict[Any, Any]]:
    """Return an object; of all rollouts of a step, as not all are trained on."""
    if where[:1] != ("samples",) or "dp_shards" in root:
        return [at(root, where)]
    samples = range(len(root["samples"]))
    try:
        records = [at(root, ("samples", n, *where[2:])) for n in samples]
    except (TypeError, LookupError):  # some have no such object
        return []
    return records if all(isinstance(record, dict) for record in records) else []


def _marks_of(record: dict[Any, Any]) -> set[str]:
    if OF_MESSAGES & record.keys():
        return MARKS
    return {"id"} if {"name", "response"} <= record.keys() else set()  # of Gemini


TABLES = (".parquet", ".arrow")
PICKLES = (".pkl", ".pt")
Case = Path | list[dict[str, Any]]  # a file, or rows in memory


def _rows(path: Path) -> tuple[list[dict[str, Any]], dict[bytes, bytes]]:
    if path.suffix == ".parquet":
        table = pq.read_table(path)
    else:
        with path.open("rb") as file:
            is_file = file.read(6) == b"ARROW1"
            file.seek(0)
            table = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(
                file
            ).read_all()
    return table.to_pylist(), table.schema.metadata or {}


_KNOWN: dict[int, list[Place]] = {}


def places_in(case: Case) -> list[Place]:
    """Return the places of objects in what is read to load a case."""
    if id(case) not in _KNOWN:
        _KNOWN[id(case)] = [*_places(case)]
    return _KNOWN[id(case)]


def _places(case: Case) -> Iterator[Place]:
    if not isinstance(case, Path) or case.suffix in TABLES:
        rows = _rows(case)[0] if isinstance(case, Path) else case
        yield from ((None, place) for place in objects(rows))
        return
    trees: dict[object, list[Path_]] = {}
    with trees_read(lambda tree, value: trees.setdefault(tree, [*objects(value)])):
        rd.load(case)
    yield from ((tree, place) for tree, places in trees.items() for place in places)


def load_with(
    case: Case, place: Place, name: str, value: object, folder: Path
) -> rd.Batch | None:
    """Load a case with one leaf more in an object; None if it cannot have it."""
    tree, where = place
    is_added = False

    def add(read: object, root: Any) -> None:
        nonlocal is_added
        records = _alike(where, root) if read == tree else []
        if not records or any(name in record for record in records):
            return
        is_plain = not isinstance(value, dict | list | Image.Image)
        if not (is_plain and any(name in _marks_of(record) for record in records)):
            is_added = True
            for record in records:
                record[name] = value

    if not isinstance(case, Path):
        case = deepcopy(case)
        add(None, case)
        is_of_steps = "trajectory" in case[0] and "step" in case[0]
        batch = rd.Batch.from_steps(case) if is_of_steps else rd.load(case)
        return batch if is_added else None
    if case.suffix in TABLES:
        rows, metadata = _rows(case)
        add(None, rows)
        case = folder / f"{case.stem}.parquet"
        names = dict.fromkeys(name for row in rows for name in row)
        try:
            columns = {name: [row.get(name) for row in rows] for name in names}
            table = pa.table(columns)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # no table has such a column
            return None
        pq.write_table(table.replace_schema_metadata(metadata), case)
    with trees_read(add):
        batch = rd.load(case)
    return batch if is_added else None

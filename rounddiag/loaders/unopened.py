"""What to say of content that is no batch: where its messages are, how to open them.

The words are the same for a file and for what `json.load` makes of it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import numpy as np

from rounddiag.batch.turns import GENERATED
from rounddiag.errors import LoadError
from rounddiag.loaders.detection import content_names, describe_content, is_weights
from rounddiag.loaders.fields import REQUIRED, columns_example, our_name
from rounddiag.loaders.frameworks.conversations import as_message
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.packed import packing
from rounddiag.loaders.signatures import UnknownContent, unknown_error
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, as_table
from rounddiag.text.json_text import MAX_DEPTH, object_in
from rounddiag.wording import format_names, join_names, pluralize

_EACH = "*"  # in a path: each item of a list
# What a message is written from: the first records, values and places.
_MAX_RECORDS, _MAX_VALUES, _MAX_PLACES = 100, 100_000, 3
# Fields of an event that say what it is and who made it; words of the model's, and none
# of others; words of the fields of a step that a model wrote.
_KINDS = ("type", "kind", "event", "source", "role")
_OF_MODEL = re.compile(
    "(?!.*(user|human|system|tool|env|observ|input|result|error|state|start|end$))"
    ".*(assistant|agent|model|action|answer)"
)
_WROTE = re.compile(
    "response|reply|answer|completion|prediction|thought|reason|plan|action|command"
    "|operation|output|code|said|did$|wrote"
)


@dataclass(kw_only=True)
class ListPath:
    """Lists at one place in a value: of messages, or of other objects.

    Attributes
    ----------
    path: Keys that lead to a list, and `*` for each item of a list before it.
    items: The first items, or the messages in them.
    inner: The keys that lead from items to their messages.
    is_chat: Whether these are messages.
    """

    path: tuple[str, ...]
    items: list[Mapping[str, Any]] = field(default_factory=list)
    inner: set[tuple[str, ...]] = field(default_factory=set)
    is_chat: bool = False

    def __str__(self) -> str:
        """Return the path within a row, such as `trajectories[*].messages`."""
        keys = ("[*]" if key == _EACH else f".{key:.40}" for key in self.path[1:])
        return "".join(keys).removeprefix(".") or (
            "each row" if self.path else "the rows"
        )

    @property
    def order(self) -> tuple[object, ...]:
        """Messages come first, those with a model's before others."""
        has_model = any(item.get("role", GENERATED) == GENERATED for item in self.items)
        return not self.is_chat, not has_model, self.path.count(_EACH), -len(self.items)

    @property
    def kinds(self) -> tuple[list[str], list[tuple[str, ...]]] | None:
        """The fields that say what an event is, and their values in the model's.

        None where all are the model's, or none is.
        """
        texts = [{k: v for k, v in i.items() if isinstance(v, str)} for i in self.items]
        keys = [key for key in _KINDS if any(key in text for text in texts)]
        kinds = dict.fromkeys(tuple(t.get(key, "") for key in keys) for t in texts)
        of_model = [k for k in kinds if _OF_MODEL.match(" ".join(k).strip().lower())]
        return (keys, of_model) if 0 < len(of_model) < len(kinds) else None

    @property
    def are_steps(self) -> bool:
        """Whether a field counts the items, and the model wrote some."""
        steps = [1] * (len(self.items) - 1)
        for name in self.items[0] if steps else ():
            numbers: list[Any] = [item.get(name) for item in self.items]
            if {*map(type, numbers)} == {int} and np.diff(numbers).tolist() == steps:
                return len(self.fields) > 0
        return False

    @property
    def fields(self) -> list[str]:
        """The fields of a step that a model wrote, by their names."""
        steps = dict(pair for item in self.items for pair in item.items())
        return [
            name
            for name, value in steps.items()
            if any(
                _WROTE.search(key.lower()) and not key.endswith(("_id", "uid"))
                for key in (name, *object_in(value))
            )
        ]


def find_lists(rows: Sequence[object]) -> list[ListPath]:
    """Return the places of messages, then those of other objects.

    Examples
    --------
    >>> row = {"runs": [{"log": [{"role": "user", "content": "Go."}]}]}
    >>> [str(place) for place in find_lists([row]) if place.is_chat]
    ['runs[*].log']
    """
    chats: dict[tuple[str, ...], ListPath] = {}
    others: dict[tuple[str, ...], ListPath] = {}
    silent: dict[tuple[str, ...], ListPath] = {}  # without the items that are messages
    for path, value in _objects(rows):
        end = len(path) - 1 - path[::-1].index(_EACH)
        outer, inner = path[:end], path[end + 1 :]
        if (message := as_message(value)) is not None:
            chat = chats.setdefault(outer, ListPath(path=outer, is_chat=True))
            chat.items.append(message)
            chat.inner.add(inner)
        if not inner:
            others.setdefault(outer, ListPath(path=outer)).items.append(value)
            if not any(map(as_message, (value, *map(object_in, value.values())))):
                silent.setdefault(outer, ListPath(path=outer)).items.append(value)
    # Of events, some may have a message, or look like one.
    chats = {p: v for p, v in chats.items() if p not in silent or not silent[p].kinds}
    places = {**others, **chats}.values()
    named = [p for p in places if p.path or p.is_chat or p.kinds or p.are_steps]
    return sorted(named, key=lambda place: place.order)


def _objects(root: object) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield objects with their paths, parents first, and none within a message."""
    level: list[tuple[tuple[str, ...], Any]] = [((), root)]
    num_values = 0
    for _ in range(MAX_DEPTH):
        if num_values > _MAX_VALUES:
            return
        inner: list[tuple[tuple[str, ...], Any]] = []
        for path, value in level:
            if isinstance(value, list):
                items = islice(value, _MAX_RECORDS)
                inner += [((*path, _EACH), item) for item in items]
                continue
            yield path, value
            if as_message(value) is None:
                inner += [((*path, str(key)), item) for key, item in value.items()]
        level = [pair for pair in inner if isinstance(pair[1], dict | list)]
        num_values += len(level)


def unopened_error(source: Source, root: object) -> LoadError:
    """Return the error for content of no known format."""
    if isinstance(root, JsonLines) and not _has_tokens(root):
        value, read = root.value, _code_for_rows(source, root)
        rows = value if isinstance(value, list) else [*islice(root, _MAX_RECORDS)]
        return _rows_error(source, describe_content(root), rows, read)
    advice = root.advice if isinstance(root, UnknownContent) else ""
    content, more = describe_content(root), ""
    names = content_names(root)
    if isinstance(root, Table) and not root.fields:
        content, more = f"{content}: texts {_WITHOUT}", _ROWS
    elif _has_columns(root):
        known = {*map(our_name, names)}
        missing = [f"`{name}`" for name in REQUIRED if name not in known]
        if len(missing) < len(REQUIRED):
            content += f", without {' and '.join(missing)}"
        more = f" {columns_example(names)}"
    return unknown_error(source, content, advice, more)


_WITHOUT = "without token ids or log-probs"
_ROWS = " Rows of `messages`, or of `prompt` and `completion`, open as turns."


def _has_columns(root: object) -> bool:
    """Return whether any value can be ids or log-probs: several numbers per row."""
    if isinstance(root, Mapping):
        return not is_weights(root) and len(as_table(root).fields) > 0
    return isinstance(root, JsonLines | Table)


def _has_tokens(lines: JsonLines) -> bool:
    """Return whether a record has ids, and a mask or log-probs of the same length."""
    for record in islice(lines, _MAX_RECORDS):
        rows = [row for row in map(_first_row, record.values()) if row is not None]
        for ids, scores in permutations(rows, 2):
            is_score = not (scores > 0).any() or np.isin(scores, (0, 1)).all()
            if len(ids) == len(scores) and ids.dtype.kind == "i" and is_score:
                return bool((ids >= 0).all())
    return False


def _first_row(value: Any) -> np.ndarray[Any, Any] | None:  # noqa: ANN401 any JSON
    if isinstance(value, list) and value:
        value = value[0]
        if isinstance(value, list) and {*map(type, value)} <= {int, float, bool}:
            value = np.array(value)
    is_row = isinstance(value, np.ndarray) and value.ndim == 1 and len(value) > 0
    return value if is_row else None


def _rows_error(
    source: Source, content: str, rows: Sequence[object], read: str
) -> LoadError:
    lacks, places = _WITHOUT, find_lists(rows)
    if log_probs := _find_log_probs(rows):
        lacks = f"with log-probs that are not read there, `{log_probs}`"
    if chats := [f"`{place}`" for place in places if place.is_chat]:
        named = join_names(chats[:_MAX_PLACES], len(chats), most=_MAX_PLACES)
        content += f": messages {lacks}, in {named}"
    elif places or any(object_in(row) for row in rows):
        content += f": texts {lacks}"
    if not places:
        return unknown_error(source, content, "", _ROWS)
    place = places[0]
    keys, wrote = place.kinds or ([], place.fields)
    if not place.is_chat:
        content += f"; no messages, but {_describe(place)} in `{place}`"
        if not wrote:
            return unknown_error(source, content, "", _ROWS)
    code, items, path = _LISTS.replace("READ", read), "place", place.path
    more = f" These lines open `{place}`"
    if len(place.inner) > 1 and () not in place.inner:  # an item has a conversation
        items, path = "[place]", (*path, _EACH)
    elif not place.is_chat:
        items = "messages(place)"
        code += _BLOCKS.replace("PARTS", _EVENTS if keys else _STEPS)
        code = code.replace("KEYS", repr(keys)).replace("WROTE =", f"WROTE = {wrote!r}")
        names = wrote if not keys else [" ".join(kind).strip() for kind in wrote]
        named = join_names([f"`{name}`" for name in names])
        more += f" if the model wrote {named} of it; correct WROTE if not"
    rows = f"[{{'messages': {items}}} for place in lists(rows, {path!r})]"
    more += ". Other fields of the rows are left out:"
    code += f"batch = rd.load({rows})"
    return unknown_error(source, content, "", more, code.splitlines())


def folder_error(folder: Path, files: Sequence[Path]) -> LoadError | None:
    """Return the error for a folder without a file of a known name, if it has JSON.

    Files of one event each are a trajectory; else it is the error of the largest file
    with messages or steps.
    """
    named = [file for file in files if file.suffix == ".json"]
    named.sort(key=lambda file: file.stat().st_size, reverse=True)
    known: dict[Path, JsonLines] = {}
    for file in named[:_MAX_RECORDS]:
        with suppress(LoadError):
            known[file] = JsonLines(Source.of_file(file))
    for home, number in Counter(file.parent for file in named).most_common(1):
        events = [lines.first for file, lines in known.items() if file.parent == home]
        if number > 1 and all({*_KINDS} & event.keys() for event in events):
            listed = f"sorted({_path(home)}.glob('*.json'))"
            read = f"[[json.loads(f.read_text()) for f in {listed}]], {_path(home)}"
            found = f"{number} JSON objects in files of `{home.name}`"
            source = Source(path=folder, size=0, data=b"")
            return _rows_error(source, found, [events], read)
    for lines in known.values():
        if find_lists([lines.first]):
            return unopened_error(lines.source, lines)
    return None


def _path(path: Path) -> str:
    return f"Path({os.fspath(path)!r})"


def _describe(place: ListPath) -> str:
    number = len(place.items)
    if place.kinds:
        keys = place.kinds[0]
        kinds = (" ".join(str(i.get(k, "")) for k in keys).strip() for i in place.items)
        return f"{pluralize(number, 'event')} of {format_names(dict.fromkeys(kinds))}"
    return f"{pluralize(number, 'step')} of {format_names(place.items[0])}"


def _find_log_probs(rows: Sequence[object]) -> str:
    """Return the first place that is named as log-probs and holds some; or empty."""
    for path, value in _objects(rows):
        for key, item in value.items():
            is_some = isinstance(item, Mapping | list | np.ndarray) and len(item) > 0
            if is_some and "logprob" in str(key).lower().replace("_", ""):
                return str(ListPath(path=(*path, str(key))))
    return ""


def _code_for_rows(source: Source, lines: JsonLines) -> str:
    """Return what reads the rows; `data` is what is in memory, or a pickle."""
    name = _path(source.path)
    is_object = isinstance(lines.value, dict)
    if lines.original is not None or source.data is not None or packing(source):
        return f"{'[data]' if is_object else 'data'}, None  # what the file holds"
    text = f"{name}.read_text()"
    read = f"[json.loads({text})]" if is_object else f"json.loads({text})"
    if lines.value is None:
        read = f"[json.loads(line) for line in {text}.split('\\n') if line]"
    return f"{read}, {_path(source.path.parent)}"


# The lines that open a file: those of events and of steps print `_BLOCKS` as well.
_LISTS = """
import base64, json
from itertools import groupby
from pathlib import Path
import rounddiag as rd

rows, folder = READ

def lists(value, path):  # those at a path; * is each item of a list
    if not path:
        return [value] if value else []
    inner = [value.get(path[0])] if isinstance(value, dict) else value
    return [place for item in inner or [] for place in lists(item, path[1:])]

kinds = {'.png', '.jpg', '.jpeg', '.webp'}
files = folder.rglob('*.*') if folder else []
files = {file.name: file for file in files if file.suffix.lower() in kinds}

def with_pictures(value):  # in place of the names of their files
    if isinstance(value, dict):
        return {key: with_pictures(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(with_pictures, value)]
    name = str(value)[-200:].replace('\\\\', '/').rpartition('/')[2]
    if name not in files:
        return value
    data = base64.b64encode(files[name].read_bytes()).decode()
    return f'data:image/png;base64,{data}'

rows = with_pictures(rows)
"""
_BLOCKS = """\
WROTE =

def blocks(name, value):  # its texts, pictures and calls
    if isinstance(value, dict) and {'arguments', 'function'} & {*value}:
        return [{**value, 'type': 'tool_call'}]
    if isinstance(value, (dict, list)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        return [block for key, v in pairs for block in blocks(f'{name}.{key}', v)]
    if str(value).startswith(('data:image/', 'iVBORw0KGgo', '/9j/')):
        return [{'type': 'image_url', 'image_url': value}]
    return [] if value is None else [{'type': 'text', 'text': f'{name}: {value}'}]

def messages(items):  # what the model wrote, between what it read
    parts = [part for item in items for part in PARTS]
    groups = groupby(parts, lambda part: part[0])
    return [{'role': 'assistant' if wrote else 'user', 'content': [
        block for _, part in group for pair in part.items() for block in blocks(*pair)
    ]} for wrote, group in groups]

"""
_EVENTS = "[(tuple(item.get(k, '') for k in KEYS) in WROTE, item)]"
_STEPS = """[
        (wrote, {k: v for k, v in item.items() if (k in WROTE) == wrote})
        for wrote in (False, True)]"""

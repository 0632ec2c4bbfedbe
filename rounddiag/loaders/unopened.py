"""What to say of content that is no batch: where its messages are, how to open them.

The words are the same for a file and for what `json.load` makes of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from rounddiag.batch.turns import GENERATED
from rounddiag.errors import LoadError
from rounddiag.loaders.detection import content_names, describe_content, is_weights
from rounddiag.loaders.fields import REQUIRED, columns_example, our_name
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.packed import packing
from rounddiag.loaders.signatures import UnknownContent, read_kind, unknown_error
from rounddiag.loaders.source import Source
from rounddiag.loaders.tables import Table, as_table
from rounddiag.text.json_text import MAX_DEPTH
from rounddiag.wording import format_names, join_names, pluralize

_EACH = "*"  # in a path: each item of a list
# What a message is written from: the first records, values and places.
_MAX_RECORDS, _MAX_VALUES, _MAX_PLACES = 100, 100_000, 3
# The key of the role, and those of what was said.
_DIALECTS = (
    ("role", ("content", "parts", "text", "message", "value")),
    ("from", ("value", "content", "text")),
    ("speaker", ("text", "content", "value", "message")),
    ("type", ("content",)),  # LangChain's
)
_TYPES = {"human", "ai", "system", "tool", "user", "assistant"}
_MODELS = {"gpt", "ai", "AI", "model", "agent", "bot"}  # what is `assistant` elsewhere


@dataclass(kw_only=True)
class ListPath:
    """Lists at one place in a value: of messages, or of other objects.

    Attributes
    ----------
    path: Keys that lead to a list, and `*` for each item of a list before it.
    is_table: Whether it is an object of equally long lists, a value per step in each.
    inner: Keys that lead from an item to its message, and how often.
    keys: The keys of the role and of what was said; None for other objects.
    roles: The roles that occur.
    names: The keys of the first item.
    num_items: How many items were read.
    has_blocks: Whether what was said is not always text.
    """

    path: tuple[str, ...]
    is_table: bool = False
    inner: dict[tuple[str, ...], int] = field(default_factory=dict)
    keys: tuple[str, str] | None = None
    roles: set[str] = field(default_factory=set)
    names: tuple[str, ...] = ()
    num_items: int = 0
    has_blocks: bool = False

    def __str__(self) -> str:
        """Return the path within a row, such as `trajectories[*].messages`."""
        keys = ("[*]" if key == _EACH else f".{key:.40}" for key in self.path[1:])
        return "".join(keys).removeprefix(".") or (
            "each row" if self.path else "the rows"
        )

    @property
    def has_named_messages(self) -> bool:
        """Whether each item has several messages, under keys of its own."""
        return len(self.inner) > 1 and () not in self.inner

    @property
    def has_model(self) -> bool:
        """Whether a role is the model's."""
        return not self.roles.isdisjoint({GENERATED, *_MODELS})

    def add(self, item: Mapping[Any, Any], inner: tuple[str, ...]) -> None:
        """Count an item; `inner` leads to it if it is a message in another object."""
        self.num_items += 1
        self.names = self.names or tuple(map(str, item))
        self.inner[inner] = self.inner.get(inner, 0) + 1
        if self.keys and self.keys[0] in item:
            self.roles.add(item[self.keys[0]])
            self.has_blocks |= not isinstance(item.get(self.keys[1]), str)


def find_lists(rows: Sequence[object]) -> tuple[list[ListPath], list[ListPath]]:
    """Return the places of messages, and those of other objects.

    Those with the model's turns come first, then those at few levels, of many items.

    Examples
    --------
    >>> row = {"runs": [{"log": [{"role": "user", "content": "Go."}]}]}
    >>> [str(place) for place in find_lists([row])[0]]
    ['runs[*].log']
    """
    chats: dict[tuple[str, ...], ListPath] = {}
    others: dict[tuple[str, ...], ListPath] = {}
    for path, value in _objects(rows):
        end = len(path) - 1 - path[::-1].index(_EACH)
        keys, inner = _message_keys(value), path[end + 1 :]
        if keys is not None:
            chats.setdefault(path[:end], ListPath(path=path[:end], keys=keys)).add(
                value, inner
            )
        elif size := _size_of_table(value) * (len(path) > 1):
            others[path] = ListPath(
                path=path, is_table=True, names=tuple(value), num_items=size
            )
        elif not inner and path[:end]:
            others.setdefault(path[:end], ListPath(path=path[:end])).add(value, inner)
    places = [
        sorted(
            lists.values(),
            key=lambda p: (not p.has_model, p.path.count(_EACH), -p.num_items),
        )
        for lists in (chats, others)
    ]
    return places[0], places[1]


def _objects(root: object) -> Iterator[tuple[tuple[str, ...], Mapping[Any, Any]]]:
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
            if _message_keys(value) is None:
                inner += [((*path, str(key)), item) for key, item in value.items()]
        level = [pair for pair in inner if isinstance(pair[1], Mapping | list)]
        num_values += len(level)


def _message_keys(value: Mapping[Any, Any]) -> tuple[str, str] | None:
    """Return the keys of role and text if a value is a message."""
    for role, texts in _DIALECTS:
        name = value.get(role)
        if isinstance(name, str) and (role != "type" or name in _TYPES):
            said = next((key for key in texts if key in value), None)
            if said is not None:
                return role, said
    return None


def _size_of_table(value: Mapping[Any, Any]) -> int:
    """Return the size of the lists of an object that has nothing else; else 0."""
    sizes = {len(row) if isinstance(row, list) else 0 for row in value.values()}
    return sizes.pop() if len(sizes) == 1 and len(value) > 1 else 0


def unopened_error(source: Source, root: object) -> LoadError:
    """Return the error for content of no known format."""
    if isinstance(root, JsonLines) and not _has_tokens(root):
        return _texts_error(source, root)
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
        ids = [row for row in rows if row.dtype.kind == "i" and (row >= 0).all()]
        scores = [row for row in rows if _is_score(row)]
        if any(len(a) == len(b) and a is not b for a in ids for b in scores):
            return True
    return False


def _first_row(value: Any) -> np.ndarray[Any, Any] | None:  # noqa: ANN401 any JSON
    """Return a list of numbers, or the first of a column of them."""
    if isinstance(value, list) and value:
        value = value[0]
        if isinstance(value, list) and {*map(type, value)} <= {int, float, bool}:
            value = np.array(value)
    is_row = isinstance(value, np.ndarray) and value.ndim == 1 and len(value) > 0
    return value if is_row else None


def _is_score(row: np.ndarray[Any, Any]) -> bool:
    """Return whether numbers can be a mask or log-probs."""
    if row.dtype.kind == "f":
        return not (row > 0).any()
    return row.dtype.kind in "bi" and not ((row != 0) & (row != 1)).any()


def _texts_error(source: Source, lines: JsonLines) -> LoadError:
    """Return the error for records without tokens, with the lines that open them."""
    value = lines.value
    rows = value if isinstance(value, list) else [*islice(lines, _MAX_RECORDS)]
    chats, others = find_lists(rows)
    content, lacks = describe_content(lines), _WITHOUT
    if log_probs := _find_log_probs(rows):
        lacks = f"with log-probs that are not read there, `{log_probs}`"
    if chats:
        quoted = [f"`{place}`" for place in chats[:_MAX_PLACES]]
        places = join_names(quoted, len(chats), most=_MAX_PLACES)
        content += f": messages {lacks}, in {places}"
    elif lines.first:
        content += f": texts {lacks}"
    if not chats and others:
        names = format_names(others[0].names)
        number = pluralize(others[0].num_items, "step")
        content += f"; no messages, but {number} of {names} in `{others[0]}`"
    if not chats and not others:
        return unknown_error(source, content, "", _ROWS)
    place = (chats or others)[0]
    turns = _code_for_turn(place) if chats else _CODE_FOR_STEPS
    code = [
        *("", "import gzip, json", "import rounddiag as rd", "", *turns, ""),
        *_code_for_rows(source, lines),
        *_code_for_batch(place, rows),
    ]
    return unknown_error(source, content, "", " These lines open it:", code)


def _find_log_probs(rows: Sequence[object]) -> str:
    """Return the first place that is named as log-probs and holds some; or empty."""
    for path, value in _objects(rows):
        for key, item in value.items():
            is_some = isinstance(item, Mapping | list | np.ndarray) and len(item) > 0
            if is_some and "logprob" in str(key).lower().replace("_", ""):
                return str(ListPath(path=(*path, str(key))))
    return ""


def _code_for_turn(place: ListPath) -> list[str]:
    role, said = place.keys or ("", "")
    wrappers = () if place.has_named_messages else place.inner
    models = {} if GENERATED in place.roles else sorted(place.roles & _MODELS)
    names = dict.fromkeys(models, GENERATED)
    given = f"{names}.get(role, role)" if names else "role"
    return [
        "def turn(message):",
        *(
            f"    message = message.get({key!r}, message)"
            for path in wrappers
            for key in path
        ),
        f"    role = message.get({role!r}, 'other')",
        f"    text = message.get({said!r}, message)",
        *(_CODE_FOR_BLOCKS * place.has_blocks),
        f"    return {given}, str(text or '')",
    ]


_CODE_FOR_BLOCKS = (
    "    if isinstance(text, list):  # blocks",
    "        text = [block for block in text if isinstance(block, dict)]",
    "        text = ' '.join(str(block.get('text', '')) for block in text)",
)


_CODE_FOR_STEPS = (
    "def turns(step):  # what the model read in it, and what it wrote",
    f"    return ('user', str(step['...'])), ({GENERATED!r}, str(step['...']))",
)


def _code_for_rows(source: Source, lines: JsonLines) -> list[str]:
    """Return the lines that read the rows; `data` is what is in memory, or a pickle."""
    name, pack = os.fspath(source.path), packing(source)
    is_text = source.data is None and read_kind(source) in {"json", "packed"}
    is_object = isinstance(lines.value, dict)
    if not is_text or pack == "zstd" or lines.original is not None:
        rows = "[data]" if is_object else "data"
        return [f"rows = {rows}  # `data` is what the file holds"]
    opened = f"gzip.open({name!r}, 'rt')" if pack else f"open({name!r})"
    read = "[json.load(file)]" if is_object else "json.load(file)"
    if lines.value is None:
        read = "[json.loads(line) for line in file]"
    return [f"with {opened} as file:", f"    rows = {read}"]


def _code_for_batch(place: ListPath, rows: Sequence[Any]) -> list[str]:
    """Return the lines that make a batch of the messages, or of the steps, of rows."""
    items, loops = "rows", []
    values: list[Any] = [rows]
    are_missing = False
    variables = iter(("row", "part", "inner", *"abcdef"))
    ends = {_EACH, None if place.is_table else ""}
    for key, after in zip(place.path, (*place.path[1:], ""), strict=False):
        if key == _EACH:
            variable = next(variables, "item")
            loops.append(f"    for {variable} in {items}")
            items, are_missing = variable, False
            values = [item for value in values for item in value][:_MAX_VALUES]
            continue
        have = [v[key] for v in values if isinstance(v, Mapping) and v.get(key)]
        are_missing |= len(have) < len(values)
        default = "[]" if after in ends else "{}"
        lookup = f"({items}.get({key!r}) or {default})"
        items, values = lookup if are_missing else f"{items}[{key!r}]", have
    if place.is_table:
        items = f"(dict(zip({items}, step)) for step in zip(*{items}.values()))"
    elif place.has_named_messages:
        loops.append(f"    for item in {items}")
        keys = ("".join(f"[{key!r}]" for key in inner) for inner in place.inner)
        items = f"({', '.join(f'item{key}' for key in keys)})"
    turns = f"[*map(turn, {items})]"
    if place.keys is None:
        turns = f"[turn for step in {items} for turn in turns(step)]"
    lines = [f"    {turns}", *loops] if loops else [f"    [{turns}]"]
    return ["batch = rd.Batch.from_turns(", *lines, ")"]

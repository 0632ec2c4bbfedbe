"""Records of JSON: one per line, or one document; text, packed text, or in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from types import NoneType
from typing import Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import LoadError
from rounddiag.loaders.packed import open_unpacked, packing
from rounddiag.loaders.source import Source, damage_error
from rounddiag.loaders.stored import scalar_value
from rounddiag.text.json_text import (
    MAX_DEPTH,
    JsonError,
    objects_in,
    parse_json,
    plain_tree,
)
from rounddiag.wording import join_names

_NUMBERS = {bool, int, float, NoneType}
_INTEGERS = [(1 << bits - 1, np.dtype(f"int{bits}")) for bits in (8, 16, 32, 64)]
_MAX_ROWS = 16  # a list of more lists is not a field per token


def compact(value: Any) -> Any:  # noqa: ANN401 any value of JSON
    """Return lists of numbers as arrays of the smallest dtype that is exact.

    Examples
    --------
    >>> compact([[1, 2], [0.5, None]])
    [array([1, 2], dtype=int8), array([0.5, nan], dtype=float32)]
    >>> compact(["a", "b"])
    ['a', 'b']
    """
    if not isinstance(value, list):
        return value
    kinds = set(map(type, value))
    if kinds <= _NUMBERS:
        return _array(value, kinds)
    if kinds == {list} and len(value) <= _MAX_ROWS:
        return [compact(row) for row in value]
    return value


def _array(values: list[Any], kinds: set[type]) -> Array | list[Any]:
    """Return numbers as an array, null as NaN; unchanged if no dtype fits."""
    try:
        if kinds & {float, NoneType}:
            return _shrink_floats(np.array(values, dtype=np.float64))
        if int in kinds:
            return _shrink_integers(np.array(values, dtype=np.int64))
    except OverflowError:
        return values
    return np.array(values, dtype=bool)


def _shrink_floats(wide: Array) -> Array:
    with np.errstate(over="ignore"):
        small = wide.astype(np.float32)
    is_same = (small == wide).all() or np.array_equal(small, wide, equal_nan=True)
    return small if is_same else wide


def _shrink_integers(wide: Array) -> Array:
    low, high = int(wide.min()), int(wide.max())
    fitting = (dtype for end, dtype in _INTEGERS if -end <= low and high < end)
    return wide.astype(next(fitting))


_KINDS = {
    list: "a list of other values",
    dict: "an object",
    str: "text",
    NoneType: "null",
}


class Record(dict[str, Any]):
    """One record of a file of JSON lines; its lists of numbers are arrays.

    Attributes
    ----------
    line: The number of its line, from 1.
    source: The file.
    """

    def __init__(self, values: dict[str, Any], *, line: int, source: Source) -> None:
        super().__init__(values)
        self.line, self.source = line, source

    def row(self, name: str, size: int | None = None) -> Array:
        """Return a field of one number per token."""
        value = self.get(name)
        kind = _KINDS.get(type(value), "one number")
        if isinstance(value, np.ndarray):
            if size in {None, len(value)}:
                return value
            kind = f"{len(value)} numbers"
        numbers = "a list of numbers" if size is None else f"a list of {size} numbers"
        raise self.source.error(
            expected=f"{numbers} in `{name}` of line {self.line}",
            found=kind if name in self else "no such field",
            advice="Every line must have one number per token in it.",
        )


class JsonLines:
    """The records of JSON: one per line, or those of one document.

    A document is an object or a list over any number of lines, or what `json.load`
    makes of it. Lines are read one at a time.

    Parameters
    ----------
    source : Source
    value : dict or list, optional
        A document in memory, in place of the source's text.

    Attributes
    ----------
    value: The document; None for records on several lines.
    original: The document in memory as it was passed; else None.
    first: The first record, which identifies the format; empty if there is none.

    Examples
    --------
    >>> from pathlib import Path
    >>> from rounddiag.loaders.source import Source, damage_error
    >>> data = b'{"step": 1, "loss_mask": [0, 1]}'
    >>> JsonLines(Source(path=Path("f.jsonl"), size=len(data), data=data)).first
    {'step': 1, 'loss_mask': array([0, 1], dtype=int8)}
    """

    def __init__(self, source: Source, value: object = None) -> None:
        self.source, self.original = source, value
        self.value = self._document() if value is None else self._plain(value)
        self.has_columns = False
        self.first = next(iter(self), Record({}, line=0, source=source))

    def __iter__(self) -> Iterator[Record]:
        for record in self._records():
            yield from _rows(record) if self.has_columns else [record]

    def with_columns(self) -> JsonLines:
        """Return the rows of records whose lists are columns."""
        lines = copy(self)
        lines.has_columns = True
        lines.first = next(iter(lines))
        return lines

    def _records(self) -> Iterator[Record]:
        if self.value is None:
            yield from (self._record(*line) for line in self._lines())
            return
        rows = self.value if isinstance(self.value, list) else [self.value]
        if all(isinstance(row, dict) for row in rows):
            for number, row in enumerate(rows, 1):
                yield Record(row, line=number, source=self.source)
        elif all(map(_is_conversation, rows)):
            for number, row in enumerate(rows, 1):
                yield Record({"messages": row}, line=number, source=self.source)

    def _plain(self, value: object) -> object:
        try:
            return _compacted(plain_tree(value, scalar_value), {})
        except JsonError as error:
            raise self.source.error(
                expected="texts, numbers, lists and objects, as JSON has them",
                found=str(error),
                advice="Convert it to what `json.dumps` takes.",
            ) from error

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        from tqdm.auto import tqdm

        with (
            open_unpacked(self.source) as stream,
            tqdm(unit="B", unit_scale=True, leave=False, delay=1) as bar,
        ):
            bar.total = None if packing(self.source) else self.source.size
            for number, line in enumerate(stream, 1):
                bar.update(len(line))
                if not line.isspace():
                    yield number, line

    def _document(self) -> object:
        """Return the value of a text that is one document; None for other texts."""
        lines = self._lines()
        number, line = next(lines, (0, b""))
        if not number:
            return None
        try:
            value = parse_json(line, pairs=_object)
        except JsonError as error:
            if not (error.is_cut_off and line.endswith(b"\n")):
                raise self._damage(number, error) from error
        else:
            is_alone = next(lines, None) is None
            return value if is_alone and isinstance(value, dict | list) else None
        try:
            with open_unpacked(self.source) as stream:
                return parse_json(stream.read(), pairs=_object)
        except JsonError as error:
            if "Extra data" in str(error):
                raise self._cut_off_error(number) from error
            raise damage_error(found=str(error), file=self.source.path) from error

    def _record(self, number: int, line: bytes) -> Record:
        try:
            record = parse_json(line, pairs=_object)
        except JsonError as error:
            if error.is_cut_off and line.endswith(b"\n"):  # it goes on in the next line
                raise self._cut_off_error(number) from error
            raise self._damage(number, error) from error
        if not isinstance(record, dict):
            kind = "a list" if isinstance(record, list) else "a single value"
            fault = f"{kind} in line {number}, where a record must be"
            raise damage_error(found=fault, file=self.source.path)
        return Record(record, line=number, source=self.source)

    def _damage(self, number: int, error: JsonError) -> LoadError:
        fault = f"line {number}: {error}"
        return damage_error(found=fault, file=self.source.path)

    def _cut_off_error(self, number: int) -> LoadError:
        return self.source.error(
            expected="one whole JSON record on every line",
            found=f"a record that does not end on line {number}",
            advice="Write each record without line breaks: `json.dumps` without"
            " `indent`.",
        )


def _is_conversation(row: object) -> bool:
    messages = objects_in(row)
    is_list = isinstance(row, list) and 0 < len(row) == len(messages)
    return is_list and bool({"role", "from"} & {*messages[0]})


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = {name: compact(value) for name, value in pairs}
    if len(record) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name in counts if counts[name] > 1)
        raise ValueError(f"`{twice:.40}` twice")
    return record


def columns_or_rows(
    lines: JsonLines, names: Iterable[str]
) -> JsonLines | Mapping[str, Any]:
    """Return the columns of one record, or the rows of several, if lists are columns.

    They are if a list under one of these names holds texts or lists, and none holds
    objects, as a conversation does. Other records are returned unchanged.

    Examples
    --------
    >>> from pathlib import Path
    >>> source = Source(path=Path("list"), size=0, data=b"")
    >>> log = [{"step": n, "prompt": ["a", "b"], "score": [n, 0]} for n in (7, 8)]
    >>> [*columns_or_rows(JsonLines(source, log), ["prompt"])][2]
    {'step': 8, 'prompt': 'a', 'score': 8}
    """
    lists = [lines.first[name] for name in names if name in lines.first]
    if any(map(objects_in, lists)) or not any(isinstance(v, list) for v in lists):
        return lines
    if isinstance(lines.value, dict):
        return lines.original if isinstance(lines.original, dict) else lines.first
    return lines.with_columns()


def _rows(record: Record) -> Iterator[Record]:
    """Yield the rows of a record: its lists are columns, other values are for all."""
    sizes = {
        name: len(v) for name, v in record.items() if isinstance(v, _LISTS) and len(v)
    }
    if len({*sizes.values()}) != 1:
        named = [f"`{name:.40}` of {size}" for name, size in sizes.items()]
        raise record.source.error(
            expected="lists of one length, with a value for each sample",
            found=f"{join_names(named)} in line {record.line}",
            advice="Write a line for each sample.",
        )
    for index in range(max(sizes.values())):
        row = {name: v[index] if name in sizes else v for name, v in record.items()}
        row = {
            name: v.item() if isinstance(v, np.generic) else v
            for name, v in row.items()
        }
        yield Record(row, line=record.line, source=record.source)


_LISTS = (list, np.ndarray)


def _compacted(value: Any, known: dict[int, Any], depth: int = MAX_DEPTH) -> Any:  # noqa: ANN401 any value
    """Return a value with its lists of numbers as arrays, as `compact` does for a text.

    `known` are the results by id: objects may hold each other, or themselves.
    """
    if not isinstance(value, dict | list) or not depth:
        return value
    if id(value) not in known:
        known[id(value)] = value  # where it holds itself
        if isinstance(value, dict):
            pairs = value.items()
            known[id(value)] = {n: _compacted(v, known, depth - 1) for n, v in pairs}
        elif (kinds := {*map(type, value)}) <= _NUMBERS and depth < MAX_DEPTH:
            known[id(value)] = _array(value, kinds)
        elif kinds != {list} or len(value) <= _MAX_ROWS:
            known[id(value)] = [_compacted(v, known, depth - 1) for v in value]
    return known[id(value)]


def is_json_value(value: object) -> bool:
    """Return whether a value is a list of dictionaries, or what `json.load` returns.

    Examples
    --------
    >>> [*map(is_json_value, ({"ids": [1, 2.5, None]}, {"ids": (1, 2)}, {1: "a"}))]
    [True, False, False]
    """
    if isinstance(value, list) and value and {*map(type, value)} == {dict}:
        return True
    return isinstance(value, dict | list) and _is_json(value, MAX_DEPTH, {})


def _is_json(value: object, depth: int, known: dict[int, bool]) -> bool:
    """Return whether it is JSON of so many levels; `known` are objects and lists by id.

    Each is read once: those of a pickle may hold each other, or themselves.
    """
    if not isinstance(value, dict | list) or not depth:
        return type(value) in _PLAIN
    if id(value) not in known:
        known[id(value)] = False  # while it is read
        has_names = isinstance(value, list) or {*map(type, value)} <= {str}
        items = value.values() if isinstance(value, dict) else value
        known[id(value)] = has_names and (
            {*map(type, items)} <= _PLAIN
            or all(_is_json(item, depth - 1, known) for item in items)
        )
    return known[id(value)]


_PLAIN = {str, *_NUMBERS}


def read_document(source: Source) -> dict[str, Any]:
    """Return the one JSON object of a file; its lists of numbers are arrays."""
    document = JsonLines(source).value
    if not isinstance(document, dict):
        fault = "another JSON value than one object"
        raise damage_error(found=fault, file=source.path)
    return document

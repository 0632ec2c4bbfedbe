"""JSON text with one record per line, as it is or packed by zstd."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from types import NoneType
from typing import IO, Any

import numpy as np

from rounddiag._typing import Array
from rounddiag.errors import LoadError
from rounddiag.loaders.json_text import JsonError, parse_json
from rounddiag.loaders.signatures import ZSTD
from rounddiag.loaders.source import Source, damage_error

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
    """The records of a file, read one line at a time.

    Parameters
    ----------
    source : Source

    Attributes
    ----------
    first: The first record, which identifies the format; empty if there is none.

    Examples
    --------
    >>> from pathlib import Path
    >>> from rounddiag.loaders.source import Source, damage_error
    >>> data = b'{"step": 1, "loss_mask": [0, 1]}'
    >>> JsonLines(Source(path=Path("f.jsonl"), size=len(data), data=data)).first
    {'step': 1, 'loss_mask': array([0, 1], dtype=int8)}
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        empty = Record({}, line=0, source=source)
        self.first = next(iter(self), empty)

    def __iter__(self) -> Iterator[Record]:
        from tqdm.auto import tqdm

        with (
            io.BufferedReader(self.source.open()) as stream,
            tqdm(unit="B", unit_scale=True, leave=False, delay=1) as bar,
        ):
            is_packed = stream.peek(len(ZSTD)).startswith(ZSTD)
            bar.total = None if is_packed else self.source.size
            lines = self._unpack(stream) if is_packed else stream
            for number, line in enumerate(lines, 1):
                bar.update(len(line))
                if not line.isspace():
                    yield self._record(number, line)

    def _unpack(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Yield the lines of a file that zstd packed."""
        import pyarrow as pa

        try:
            with pa.CompressedInputStream(stream, "zstd") as unpacked:
                yield from io.BufferedReader(unpacked)
        except OSError as error:
            found = f"bytes that zstd cannot unpack: {error!s:.80}"
            raise damage_error(found=found, file=self.source.path) from error

    def _record(self, number: int, line: bytes) -> Record:
        try:
            record = parse_json(line, pairs=_object)
        except JsonError as error:
            if error.is_cut_off and line.endswith(b"\n"):  # it goes on in the next line
                raise self._cut_off_error(number) from error
            raise damage_error(
                found=f"line {number}: {error}", file=self.source.path
            ) from error
        if not isinstance(record, dict):
            kind = "a list" if isinstance(record, list) else "a single value"
            found = f"{kind} in line {number}, where a record must be"
            raise damage_error(found=found, file=self.source.path)
        return Record(record, line=number, source=self.source)

    def _cut_off_error(self, number: int) -> LoadError:
        return self.source.error(
            expected="one whole JSON record on every line",
            found=f"a record that does not end on line {number}",
            advice="Write each record without line breaks: `json.dumps` without"
            " `indent`.",
        )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = {name: compact(value) for name, value in pairs}
    if len(record) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name in counts if counts[name] > 1)
        msg = f"`{twice:.40}` twice"
        raise ValueError(msg)
    return record


def read_document(source: Source) -> dict[str, Any]:
    """Return the one JSON object of a file; its lists of numbers are arrays."""
    try:
        document: dict[str, Any] = parse_json(
            source.whole().read(), dict, pairs=_object
        )
    except JsonError as error:
        raise damage_error(found=str(error), file=source.path) from error
    return document


def object_in(value: object) -> dict[Any, Any]:
    """Return a value if it is an object; an empty one for any other."""
    return value if isinstance(value, dict) else {}


def objects_in(value: object) -> list[dict[str, Any]]:
    """Return the objects in a list; none in any other value."""
    items = value if isinstance(value, list) else []
    return [one for one in items if isinstance(one, dict)]

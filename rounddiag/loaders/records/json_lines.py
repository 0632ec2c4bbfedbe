"""JSON text with one record a line."""

from __future__ import annotations

import codecs
import io
import json
from typing import TYPE_CHECKING, Any

from rounddiag.loaders.records.number_arrays import compact
from rounddiag.loaders.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rounddiag.errors import LoadError
    from rounddiag.loaders.source import Source

# Bytes that Python needs at most for what follows each of these marks, while one line
# is text and not yet arrays: a number, a list, an object, half of a string.
_COSTS = {b",": 42, b"[": 250, b"{": 350, b'"': 30}
_RECORD = 3000  # what a sample of few tokens needs, in all
_SPARE = 150 << 20
_BLOCK = 1 << 20


class JsonLines:
    """The records of a file, read one line at a time.

    The records, and the values of one line, may need no more memory than the file's
    size and 150 MB.

    Parameters
    ----------
    source : Source

    Attributes
    ----------
    first : Record
        The first record, which tells the format; empty where there is none.

    Examples
    --------
    >>> from pathlib import Path
    >>> from rounddiag.loaders.source import Source
    >>> data = b'{"step": 1, "loss_mask": [0, 1]}'
    >>> JsonLines(Source(path=Path("f.jsonl"), size=len(data), data=data)).first
    {'step': 1, 'loss_mask': array([0, 1], dtype=int8)}
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._check_count()
        empty = Record({}, line=0, source=source)
        self.first = next(iter(self), empty)

    def __iter__(self) -> Iterator[Record]:
        from tqdm.auto import tqdm

        whole = self.source.size
        with (
            io.BufferedReader(self.source.open()) as stream,
            tqdm(total=whole, unit="B", unit_scale=True, leave=False, delay=1) as bar,
        ):
            for number, line in enumerate(stream, 1):
                bar.update(len(line))
                if not line.isspace():
                    yield self._record(number, line.removeprefix(codecs.BOM_UTF8))

    def _record(self, number: int, line: bytes) -> Record:
        self._check_cost(number, line)
        try:
            record = json.loads(line.decode(), object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            if _goes_on(line, error):
                raise self._unfinished(number) from error
            found = f"no JSON in line {number}: {error!s:.80}"
            raise self.source.damaged(found=found) from error
        if not isinstance(record, dict):
            kind = "a list" if isinstance(record, list) else "a single value"
            found = f"{kind} in line {number}, where a record must be"
            raise self.source.damaged(found=found)
        return Record(record, line=number, source=self.source)

    def _unfinished(self, number: int) -> LoadError:
        return self.source.error(
            expected="one whole JSON record on every line",
            found=f"a record that does not end on line {number}",
            advice="Write each record without line breaks: `json.dumps` without"
            " `indent`.",
        )

    def _check_count(self) -> None:
        """Refuse a file of a few bytes a record that would fill the memory."""
        with self.source.open() as stream:
            blocks = iter(lambda: stream.read(_BLOCK) or b"", b"")
            count = sum(block.count(b"\n") for block in blocks)
        self._check(count * _RECORD, f"{count} lines, whose records")

    def _check_cost(self, number: int, line: bytes) -> None:
        """Refuse a line of a few bytes a value that would fill the memory."""
        cost = sum(line.count(mark) * size for mark, size in _COSTS.items())
        if not line.isascii():  # one such character makes all of them as wide
            cost += 3 * len(line)
        self._check(cost, f"line {number}, whose values")

    def _check(self, cost: int, what: str) -> None:
        if cost > self.source.size + _SPARE:
            found = f"{what} need {cost >> 20} MB of memory"
            raise self.source.damaged(found=found)


def _goes_on(line: bytes, error: Exception) -> bool:
    """Tell a record of several lines, well up to the line's end, from one cut off."""
    is_at_end = isinstance(error, json.JSONDecodeError) and error.pos == len(error.doc)
    return is_at_end and line.endswith(b"\n")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = {name: compact(value) for name, value in pairs}
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"`{twice:.40}` twice"
        raise ValueError(msg)
    return found

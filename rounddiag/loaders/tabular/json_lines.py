"""JSON text with one record a line."""

from __future__ import annotations

import codecs
import io
import json
from collections import defaultdict
from dataclasses import replace
from hashlib import blake2b
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.layout import offsets_of
from rounddiag.loaders.fields.mapping import batch_from_fields
from rounddiag.loaders.fields.padding import divided
from rounddiag.loaders.lazy.arrays import Ragged, ragged
from rounddiag.loaders.natural_order import is_absent
from rounddiag.loaders.source import left_out_entry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from torch import Tensor

    from rounddiag._typing import Array
    from rounddiag.batch import Batch
    from rounddiag.errors import LoadError
    from rounddiag.loaders.source import Source


_NUMBERS = {bool, int, float, NoneType}
_INTEGERS = [(1 << bits - 1, np.dtype(f"int{bits}")) for bits in (8, 16, 32, 64)]
_MAX_ROWS = 16  # a list of more lists is not a row of tokens


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
            return _smaller(np.array(values, dtype=np.float64))
        if int in kinds:
            return _smallest(np.array(values, dtype=np.int64))
    except OverflowError:
        return values
    return np.array(values, dtype=bool)


def _smaller(wide: Array) -> Array:
    with np.errstate(over="ignore"):
        small = wide.astype(np.float32)
    is_same = (small == wide).all() or np.array_equal(small, wide, equal_nan=True)
    return small if is_same else wide


def _smallest(wide: Array) -> Array:
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
    line : int
        The number of its line, from 1.
    source : Source
        The file.
    """

    def __init__(self, values: dict[str, Any], *, line: int, source: Source) -> None:
        super().__init__(values)
        self.line, self.source = line, source

    def row(self, name: str, size: int | None = None) -> Array:
        """Return a field of one number a token.

        Raises
        ------
        LoadError
            If it is missing, holds other values, or does not have `size` numbers.
        """
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
            advice="Every line must have one number a token in it.",
        )


# The most bytes that Python needs for the value after each of these marks, before the
# values of a line become arrays: a number, a list, an object, half of a string.
_COSTS = {b",": 42, b"[": 250, b"{": 350, b'"': 30}
_RECORD = 3000  # bytes that a sample of few tokens needs
_SPARE = 150 << 20
_BLOCK = 1 << 20


class JsonLines:
    """The records of a file, read one line at a time.

    The records, and the values of one line, may need at most as much memory as the
    file's size plus 150 MB.

    Parameters
    ----------
    source : Source

    Attributes
    ----------
    first : Record
        The first record, which tells the format; empty if there is none.

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
        """Refuse a file of many short records that would fill the memory."""
        with self.source.open() as stream:
            blocks = iter(lambda: stream.read(_BLOCK) or b"", b"")
            count = sum(block.count(b"\n") for block in blocks)
        self._check(count * _RECORD, f"{count} lines, whose records")

    def _check_cost(self, number: int, line: bytes) -> None:
        """Refuse a line of many short values that would fill the memory."""
        cost = sum(line.count(mark) * size for mark, size in _COSTS.items())
        if not line.isascii():  # one wide character widens all of them
            cost += 3 * len(line)
        self._check(cost, f"line {number}, whose values")

    def _check(self, cost: int, what: str) -> None:
        if cost > self.source.size + _SPARE:
            found = f"{what} need {cost >> 20} MB of memory"
            raise self.source.damaged(found=found)


def _goes_on(line: bytes, error: Exception) -> bool:
    """Whether a record goes on in the next line, as opposed to being cut off."""
    is_at_end = isinstance(error, json.JSONDecodeError) and error.pos == len(error.doc)
    return is_at_end and line.endswith(b"\n")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = {name: compact(value) for name, value in pairs}
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"`{twice:.40}` twice"
        raise ValueError(msg)
    return record


SAME_PROMPT = {"group_source": "samples whose prompts have the same tokens"}
_APART = {"token_ids", "response_mask", "position_ids"}
_PIECE = 256  # samples that are split at once


class SampleRecords:
    """Collects samples that a file holds as whole sequences.

    The objects of many short rows need more memory than the rows. So these are
    concatenated piece by piece while the file is read.

    Parameters
    ----------
    source : Source
    mask_source : str
        The name of the mask in the file.

    Attributes
    ----------
    left_out : set of str
        Fields of the file that a Batch has no place for.
    """

    def __init__(self, source: Source, mask_source: str) -> None:
        self.left_out: set[str] = set()
        self._source, self._mask_source = source, mask_source
        self._rows: dict[str, list[Tensor]] = defaultdict(list)
        self._pieces: dict[str, list[Ragged]] = defaultdict(list)
        self._columns: list[Mapping[str, object]] = []
        self._groups: list[str] = []

    def add(self, rows: Mapping[str, Array], columns: Mapping[str, object]) -> None:
        """Add a sample.

        Parameters
        ----------
        rows : mapping of str to array
            One value per token of the sequence: `token_ids`, `response_mask`, and
            other fields under verl's names.
        columns : mapping of str to object
            The values that there is one of.
        """
        for name, row in rows.items():
            self._rows[name].append(torch.from_numpy(row))
        self._rows["token_ids"][-1] = _at_least_int32(rows["token_ids"])
        self._columns.append(columns)
        if len(self._columns) % _PIECE == 0:
            self._split()

    def _split(self) -> None:
        """Split the samples added since the last call, and concatenate them."""
        names = {name: name for name in self._rows if name not in _APART}
        fields = divided(
            self._rows,
            self._source.path,
            tokens="token_ids",
            written="response_mask",
            names=names,
        )
        self._rows.clear()
        self._groups += [prompt_group(row) for row in fields["prompts"]]
        for name, rows in fields.items():
            self._pieces[name].append(ragged(rows))

    def batch(self, info: Mapping[str, object]) -> Batch:
        """Return the samples as a Batch; `meta` names what was derived and left out."""
        if self._rows:
            self._split()
        batch = batch_from_fields(
            {name: _joined(self._pieces.pop(name)) for name in [*self._pieces]},
            source=self._source.path,
            columns={"uid": self._groups, **self._table()},
            info=info,
        )
        derived = {
            "mask_source": self._mask_source,
            "prompt_source": f"the tokens before the first 1 of `{self._mask_source}`",
            **SAME_PROMPT,
        }
        entry = left_out_entry(self.left_out)
        return replace(batch, meta={**batch.meta, **derived, **entry})

    def _table(self) -> dict[str, list[object]]:
        """Return the columns, without those that are null everywhere."""
        names = dict.fromkeys(name for row in self._columns for name in row)
        table = {name: [row.get(name) for row in self._columns] for name in names}
        return {
            name: values
            for name, values in table.items()
            if not all(map(is_absent, values))
        }


def _at_least_int32(token_ids: Array) -> Tensor:
    dtype = np.promote_types(token_ids.dtype, np.int32)
    return torch.from_numpy(token_ids.astype(dtype, copy=False))


def _joined(pieces: list[Ragged]) -> Ragged:
    lengths = torch.cat([piece.lengths for piece in pieces])
    return Ragged(
        values=torch.cat([piece.values for piece in pieces]),
        offsets=offsets_of(lengths),
    )


def prompt_group(prompt: Tensor) -> str:
    """Return a short text that is equal for equal prompt tokens.

    Examples
    --------
    >>> prompt_group(torch.tensor([1, 2])) == prompt_group(torch.tensor([1, 2]).int())
    True
    """
    return blake2b(prompt.long().numpy().tobytes(), digest_size=8).hexdigest()


_CARRIED = {"entropy", "advantages", "position_ids"}


def others(
    record: Record, used: Collection[str], num_tokens: int
) -> tuple[dict[str, Array], dict[str, object], set[str]]:
    """Sort the fields of a record that a reader did not use.

    Returns
    -------
    rows : dict of str to array
        One value per token of fields that a Batch has under the same name: `entropy`,
        `advantages`, `position_ids`, log-probabilities of another engine or model.
    columns : dict of str to object
        One plain value each. Lists and objects become JSON text.
    left_out : set of str
        Fields with one value per token that a Batch has no place for.
    """
    rows, columns, left_out = {}, {}, set()
    for name, value in record.items():
        if name in used:
            continue
        if not isinstance(value, list | np.ndarray) or len(value) != num_tokens:
            columns[name] = _plain(value)
        elif name in _CARRIED or name.endswith(("_logprobs", "_log_probs")):
            rows[name] = record.row(name)
        else:
            left_out.add(name)
    return rows, columns, left_out


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    return json.dumps(value, default=_listed, ensure_ascii=False)


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 an array, as JSON wants it
    return list(value.tolist())

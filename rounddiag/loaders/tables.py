"""Rows of any container become columns: of samples, of tokens, and values for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rounddiag.batch import Batch
from rounddiag.batch.content import is_empty
from rounddiag.batch.left_out import left_out_entry, left_out_of
from rounddiag.batch.picture_places import with_pictures
from rounddiag.columns.sources import (
    Ragged,
    array_tensor,
    row_list,
    row_tensors,
)
from rounddiag.core.columns import to_numpy
from rounddiag.loaders.assembly.images import read_picture, with_screenshots
from rounddiag.loaders.field_batch import batch_from_fields
from rounddiag.loaders.fields import aliases_of
from rounddiag.loaders.json_lines import JsonLines
from rounddiag.loaders.pickle.placeholders import Node, TextBytes
from rounddiag.loaders.plain_columns import (
    RECORDS,
    SAME_PROMPT,
    TURN_SCORES,
    collect_columns,
    expand_entries,
    prompt_group,
    replaced_names,
    row_names,
    select_plain_columns,
)
from rounddiag.loaders.source import Source, Span, damage_error
from rounddiag.loaders.stored import StoredArray, StoredJagged, find_array, scalar_value
from rounddiag.text.json_text import JsonError, plain_tree

_Fields = Mapping[str, Sequence[Tensor]]
SizeOf = Callable[[str], "tuple[int, int] | None"]


class LazyFields(Mapping[str, Any]):
    """A mapping whose values are read each time they are looked up.

    Iterating over the names and `in` read nothing.

    Parameters
    ----------
    names : iterable of str
    read : callable
        Returns the value of a name.
    size_of : callable
        Returns how many rows and values a name has, where reading is not needed for it.

    Examples
    --------
    >>> fields = LazyFields(["mask", "kl"], str.upper)
    >>> "kl" in fields, fields["mask"], fields.left_out
    (True, 'MASK', ['kl'])
    """

    def __init__(
        self,
        names: Iterable[str],
        read: Callable[[str], Any],
        size_of: SizeOf = lambda _: None,
    ) -> None:
        self._read, self.size_of = read, size_of
        self._is_read = dict.fromkeys(names, False)

    @classmethod
    def watch(cls, fields: Mapping[str, Any]) -> LazyFields:
        """Return the same fields, with a `left_out` of their own."""
        return cls(fields, fields.__getitem__, _size_of(fields))

    @classmethod
    def rename(cls, fields: Mapping[str, Any], names: Mapping[str, str]) -> LazyFields:
        """Return the same fields, some of them under other names.

        Examples
        --------
        >>> dict(LazyFields.rename({"a": 1, "b": 2, "c": 3}, {"b": "a"}))
        {'c': 3, 'b': 1}
        """
        old = tuple(fields)
        keys = {name: name for name in old if name not in {*names, *names.values()}}
        keys |= {new: name for new, name in names.items() if name in old}
        size_of = _size_of(fields)
        return cls(
            keys, lambda name: fields[keys[name]], lambda name: size_of(keys[name])
        )

    @classmethod
    def join(cls, first: Mapping[str, Any], second: Mapping[str, Any]) -> LazyFields:
        """Return the fields of two mappings that share no name."""
        owner = {name: fields for fields in (first, second) for name in fields}
        return cls(owner, lambda name: owner[name][name])

    @property
    def left_out(self) -> list[str]:
        """The names that were never looked up."""
        return [name for name, is_read in self._is_read.items() if not is_read]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 whatever `read` returns
        if name not in self._is_read:
            raise KeyError(name)
        value = self._read(name)
        self._is_read[name] = True
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._is_read

    def __iter__(self) -> Iterator[str]:
        return iter(self._is_read)

    def __len__(self) -> int:
        return len(self._is_read)


def _size_of(fields: Mapping[str, Any]) -> SizeOf:
    return fields.size_of if isinstance(fields, LazyFields) else lambda _: None


@dataclass(frozen=True, kw_only=True)
class Table:
    """The columns of a table by the number of their values.

    Attributes
    ----------
    fields: Columns with several values per sample, read when they are looked up.
    columns: Columns with one value per sample.
    info: Values for the whole batch.
    left_out: Columns that a Batch cannot hold.
    marks: Names in the file's metadata, which identify the writer.
    facts: Entries of the batch's `meta` on where its columns come from.
    """

    fields: Mapping[str, Any]
    columns: Mapping[str, Any]
    info: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    marks: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def classify(
        cls,
        dims: Mapping[str, int],
        read: Callable[[str], Any],
        size_of: SizeOf = lambda _: None,
    ) -> Table:
        """Sort columns into fields, columns and info by their dimensions.

        Examples
        --------
        >>> table = Table.classify({"mask": 2, "turns": 1, "kl": 0}, str.upper)
        >>> [*table.fields], [*table.columns], table.info
        (['mask'], ['turns'], {'kl': 'KL'})
        """
        info, columns, fields = (
            [name for name, num in dims.items() if num == kind] for kind in range(3)
        )
        return cls(
            fields=LazyFields(fields, read, size_of),
            columns=LazyFields(columns, read),
            info={name: read(name) for name in info},
        )

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [*self.fields, *self.columns, *self.info]

    def convert(self, to_fields: Callable[[Mapping[str, Any]], _Fields]) -> Table:
        """Return the table with fields made of its own; those not used are left out."""
        used = LazyFields.watch(self.fields)
        fields = to_fields(used)
        return replace(self, fields=fields, left_out=[*self.left_out, *used.left_out])

    def with_prompt_groups(self) -> Table:
        """Return the table with a group for each prompt, unless it has groups."""
        if "prompts" not in self.fields or {*aliases_of("group_ids")} & {*self.columns}:
            return self
        groups = [prompt_group(prompt) for prompt in self.fields["prompts"]]
        columns = {**self.columns, "uid": groups}
        return replace(self, columns=columns, facts={**self.facts, **SAME_PROMPT})

    def rename(self, names: Mapping[str, str]) -> Table:
        """Return the same columns, some of them under other names."""
        parts = (self.fields, self.columns, self.info)
        fields, columns, info = (LazyFields.rename(part, names) for part in parts)
        return replace(self, fields=fields, columns=columns, info=info)


def table_of(
    values: Mapping[Any, Any],
    *,
    columns: Mapping[str, Any] | None = None,
    info: Mapping[Any, Any] | None = None,
) -> Table:
    """Return named values, in memory or in a file, as a table.

    `columns` and `info` are known to have one value per sample, and one for all.

    Examples
    --------
    >>> values = {"ids": [[5, 6], [7]], "turns": [2, 3], "top_p": 1.0}
    >>> table = table_of(values)
    >>> list(table.fields), list(table.columns), dict(table.info)
    (['ids'], ['turns'], {'top_p': 1.0})
    """
    cells = {str(key): _as_arrays(value) for key, value in values.items()}
    dims = {
        name: 1 if name in _PICTURES and _is_list(value) else _num_dims(value)
        for name, value in cells.items()
    }
    readers = (_single_value, column_values, rows_of)
    table = Table.classify(
        dims,
        lambda name: readers[dims[name]](cells[name]),
        lambda name: _size(cells[name]),
    )
    facts = {str(key): scalar_value(value) for key, value in (info or {}).items()}
    return replace(
        table,
        columns={**columns, **table.columns} if columns else table.columns,
        info={**facts, **table.info},
        left_out=[
            *replaced_names(columns or {}, table.columns),
            *replaced_names(facts, table.info),
        ],
    )


def as_table(root: Table | JsonLines | Mapping[Any, object]) -> Table:
    """Return the content of a file as a table."""
    if isinstance(root, JsonLines):
        rows = root.original if isinstance(root.original, list) else root
        columns, left_out = collect_columns(root if root.has_columns else rows)
        return replace(table_of(columns), left_out=left_out)
    return root if isinstance(root, Table) else table_of(root)


def records_in(
    root: Table | JsonLines | Mapping[Any, object],
) -> Iterable[Mapping[str, Any]]:
    """Return the rows of JSON or of a table; lists of a table are not read.

    They are `[None]` in each row, so that their names are known.
    """
    if isinstance(root, JsonLines):
        return root
    table = as_table(root)
    columns = table.columns
    lists = [
        getattr(column, "to_pylist", getattr(column, "tolist", column.__iter__))()
        for column in columns.values()
    ]
    rows = zip(*lists, strict=True)
    others = {**table.info, **{name: [None] for name in table.fields}}
    try:
        values = [plain_tree(row, scalar_value) for row in rows]
    except JsonError as error:
        raise damage_error(found=str(error)) from error
    return [{**others, **dict(zip(columns, row, strict=True))} for row in values]


def _as_arrays(value: Any) -> Any:  # noqa: ANN401 anything
    if hasattr(value, "iloc"):
        is_number = getattr(value.dtype, "kind", "O") in "biuf"
        return value.to_numpy() if is_number else value.tolist()
    array = find_array(value)
    value = value if array is None else array
    if isinstance(value, list) and any(isinstance(item, Node) for item in value):
        items = [find_array(item) for item in value]
        return [
            scalar_value(v) if i is None else i
            for i, v in zip(items, value, strict=True)
        ]
    return value


_ARRAYS = (torch.Tensor, np.ndarray, StoredArray)
_LISTS = (list, tuple, *_ARRAYS)
# What rows of numbers do not hold, but lists of pictures and of records do.
_OTHERS = (bytes, Mapping, Node, Span, TextBytes)


def _num_dims(value: Any) -> int:  # noqa: ANN401 anything
    """Return 0 for a single value, 1 for one value per sample, 2 for rows."""
    if isinstance(value, StoredArray):
        return value.num_dims
    if isinstance(value, torch.Tensor | np.ndarray) and value.dtype != object:
        return min(value.ndim, 2)
    if isinstance(value, StoredJagged):
        return 2
    if not _is_list(value):
        return 0
    kinds = {kind for kind in set(map(type, value)) if issubclass(kind, _LISTS)}
    rows = [item for item in value if type(item) in kinds and _is_list(item)]
    return 2 if rows and not any(map(_holds_others, rows)) else 1


def _size(value: Any) -> tuple[int, int] | None:  # noqa: ANN401 anything
    if isinstance(value, list | tuple):
        return len(value), sum(map(_num_values, value))
    if not isinstance(value, _ARRAYS) or getattr(value, "is_nested", False):
        return None
    return value.shape[0], prod(value.shape)


def _num_values(row: Any) -> int:  # noqa: ANN401 anything
    return prod(row.shape) if isinstance(row, _ARRAYS) else len(row) if row else 0


def _is_list(value: Any) -> bool:  # noqa: ANN401 anything
    return (
        len(value.shape) > 0
        if isinstance(value, _ARRAYS)
        else isinstance(value, list | tuple)
    )


def _holds_others(row: Any) -> bool:  # noqa: ANN401 a list or an array
    if isinstance(row, _ARRAYS) or not len(row):
        return False
    return isinstance(row[0], _OTHERS) or type(row[0]).__module__.startswith("PIL.")


def _single_value(value: Any) -> object:  # noqa: ANN401 a scalar, or anything
    value = value.array() if isinstance(value, StoredArray) else scalar_value(value)
    return value.item() if hasattr(value, "item") else value


def column_values(value: Any) -> Any:  # noqa: ANN401 array or list
    """Return a column of one value per sample; empty if it is none."""
    value = _as_arrays(value)
    if isinstance(value, StoredArray):
        return value.array()
    if isinstance(value, torch.Tensor):
        return to_numpy(value.detach())
    if isinstance(value, list):
        return [
            _single_value(item)
            if isinstance(item, StoredArray) and not item.shape
            else item
            for item in value
        ]
    return value if isinstance(value, tuple | np.ndarray) else []


def rows_of(value: Any) -> Ragged | Tensor | list[Tensor]:  # noqa: ANN401 rows
    """Return rows of numbers in host memory."""
    value = _as_arrays(value)
    if isinstance(value, StoredArray | StoredJagged):
        return value.read()
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, np.ndarray) and value.dtype != object:
        return array_tensor(value)
    rows = (row.read() if isinstance(row, StoredArray) else row for row in value)
    return [row.cpu() for row in row_tensors(rows)]


def as_list(value: object) -> list[object]:
    """Return a value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []


def require_unique_names(names: Sequence[object], source: Source) -> None:
    """Raise a LoadError if two columns have one name."""
    if len({*names}) < len(names):
        raise source.error(
            expected="one column of each name",
            found=f"{len(names)} columns of {len({*names})} names",
            advice="Rename the columns.",
        )


_PICTURES = aliases_of("images")


def batch_from_table(table: Table, source: Source) -> Batch:
    """Build a batch from columns under verl's names or ours.

    `meta["left_out"]` names what a Batch cannot hold.
    """
    fields, columns = LazyFields.watch(table.fields), expand_entries(table.columns)
    if TURN_SCORES in fields:  # its lists of numbers look like a field per token
        columns[TURN_SCORES] = [row.tolist() for row in row_list(fields[TURN_SCORES])]
    if "uid" not in columns and "group_ids" in columns:
        columns["uid"] = columns.pop("group_ids")
    ids = columns.pop("sample_ids", None)
    pictures = {
        name: columns.pop(name)
        for name in _PICTURES
        if name in columns and not ("shot" in name and _is_plain(columns[name]))
    }
    batch = batch_from_fields(
        fields,
        source=source.path,
        columns=columns,
        info=table.info,
        sample_ids=None if ids is None else row_names(ids),
    )
    inputs = columns.pop("multi_modal_inputs", None)
    others = _left_out(batch, columns, table.info)
    unread = [*table.left_out, *fields.left_out, *others]
    entry = left_out_entry({*left_out_of(batch), *unread})
    batch = batch.with_meta({**batch.meta, **table.facts, **entry})
    batch = batch if inputs is None else with_screenshots(batch, inputs, source)
    for name, rows in pictures.items():
        batch = with_picture_column(batch, name, rows, source)
    return batch


def _left_out(
    batch: Batch, columns: Mapping[str, Any], info: Mapping[str, Any]
) -> list[str]:
    """Return the columns, and the values for all samples, that a batch has nowhere."""
    fields = {name: columns[name] for name in ("uid", "rewards") if name in columns}
    used = {*batch.sample_columns, *select_plain_columns(fields, len(batch)), RECORDS}
    used |= {TURN_SCORES} if "turn_score" in batch.round_columns else set()
    steps = dict.fromkeys(aliases_of("step"), batch.step)
    shown = {**batch.meta, **batch.meta["sampling"], **steps}
    return [
        *(name for name in columns if name not in used),
        *(name for name in info if name not in shown),
        *replaced_names(info, shown),
    ]


def with_picture_column(
    batch: Batch, name: str, rows: Iterable[object], source: Source
) -> Batch:
    """Return a batch with the pictures of each row: one, a list, or none.

    A path is never opened, since a file must not make us read other files. Pictures
    that are only a path are left out and counted in `meta["screenshots"]`.
    """
    unread = {*left_out_of(batch)}
    try:
        values = [_picture_values(row, name, unread) for row in rows]
    except ValueError as error:  # structs of Arrow whose names are no text
        raise damage_error(found=f"{error!s:.80}") from error
    if len(values) != len(batch):
        raise source.error(
            key=name,
            expected=f"{len(batch)} rows, one per sample",
            found=f"{len(values)}",
            advice="Save a list of pictures for every sample; it may be empty.",
        )
    read = [[read_picture(value) for value in row] for row in values]
    pictures = [[shot for shot in row if shot is not None] for row in read]
    if any(pictures) or not any(values):
        images = batch.images or tuple(() for _ in read)
        batch = with_pictures(replace(batch, images=images), pictures)
    num_unread = sum(row.count(None) for row in read)
    facts = [*batch.meta.get("screenshots", [])]
    if num_unread:
        paths = "are not pictures in the file: paths are not opened"
        facts.append(f"{num_unread} of `{name}` {paths}")
    notes = {**left_out_entry(unread), **({"screenshots": facts} if facts else {})}
    return batch.with_meta({**batch.meta, **notes})


def _is_plain(rows: Any) -> bool:  # noqa: ANN401 a column
    """Return whether values are texts or numbers, such as the paths of pictures."""
    rows = rows.to_pylist() if hasattr(rows, "to_pylist") else rows
    return bool(select_plain_columns({"": rows}, len(rows)))


def _picture_values(
    row: Any,  # noqa: ANN401 of Arrow or Python
    name: str,
    unread: set[str],
) -> Sequence[object]:
    """Return the pictures of a row; other fields of its objects join `unread`."""
    row = row.as_py() if hasattr(row, "as_py") else row
    others: Mapping[Any, object] = {}
    if isinstance(row, Mapping) and {"image", "images"} & row.keys():
        others = dict(row)  # verl's `multi_modal_data`
        row = others.pop("image" if "image" in others else "images")
    values = row if isinstance(row, list | tuple) else [row]
    for record in (others, *(value for value in values if isinstance(value, Mapping))):
        fields = ((key, v) for key, v in record.items() if key not in _OF_PICTURES)
        unread.update(f"{name}.{key}" for key, value in fields if not is_empty(value))
    return [value for value in values if value is not None]


_OF_PICTURES = {"bytes", "path"}

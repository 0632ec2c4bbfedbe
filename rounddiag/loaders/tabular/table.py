"""`Table`: columns per token, per sample and for the whole batch; to a Batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from torch import Tensor

from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.images import (
    read_picture,
    with_pictures,
    with_screenshots,
)
from rounddiag.loaders.fields.columns import RECORDS, TURN_SCORES, expand_entries
from rounddiag.loaders.fields.mapping import batch_from_fields
from rounddiag.loaders.lazy.arrays import (
    Ragged,
    StoredArray,
    close_gaps,
    row_list,
    scalar_value,
    stored_array,
)
from rounddiag.loaders.lazy.tensors import StoredJagged, StoredTensor, find_tensor
from rounddiag.loaders.source import left_out_entry, left_out_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from rounddiag.batch import Batch
    from rounddiag.loaders.lazy.tensors import Value
    from rounddiag.loaders.source import Source


class LazyFields(Mapping[str, Any]):
    """A mapping whose values are read each time they are looked up.

    Iterating over the names and `in` read nothing.

    Parameters
    ----------
    names : iterable of str
    read : callable
        Returns the value of a name.

    Examples
    --------
    >>> fields = LazyFields(["mask", "kl"], str.upper)
    >>> "kl" in fields, fields["mask"], fields.left_out
    (True, 'MASK', ['kl'])
    """

    def __init__(self, names: Iterable[str], read: Callable[[str], Any]) -> None:
        self._read = read
        self._is_read = dict.fromkeys(names, False)

    @classmethod
    def watch(cls, fields: Mapping[str, Any]) -> Self:
        """Return the same fields, with a `left_out` of their own."""
        return cls(fields, fields.__getitem__)

    @classmethod
    def rename(cls, fields: Mapping[str, Any], names: Mapping[str, str]) -> Self:
        """Return the same fields, some of them under other names.

        Parameters
        ----------
        fields : mapping
        names : mapping of str to str
            New names, and the old name of each. A field that already had one of the new
            names is hidden.

        Examples
        --------
        >>> dict(LazyFields.rename({"a": 1, "b": 2, "c": 3}, {"b": "a"}))
        {'c': 3, 'b': 1}
        """
        old = tuple(fields)
        keys = {name: name for name in old if name not in {*names, *names.values()}}
        keys |= {new: name for new, name in names.items() if name in old}
        return cls(keys, lambda name: fields[keys[name]])

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


def with_picture_column(
    batch: Batch, name: str, rows: Iterable[object], source: Source
) -> Batch:
    """Return a batch with the pictures of each row: one, a list, or none.

    A path is never opened, since a file must not make us read other files. Pictures
    that are only a path are left out and counted in `meta["screenshots"]`.

    Raises
    ------
    LoadError
        If the rows are not as many as the samples.
    """
    try:
        values = [_picture_values(row) for row in rows]
    except ValueError as error:  # structs of Arrow whose names are no text
        raise source.damaged(found=f"{error!s:.80}") from error
    if len(values) != len(batch):
        raise LoadError.build(
            file=source.path,
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
    fact = f"{num_unread} of `{name}` are no pictures in the file: paths are not opened"
    facts = [*batch.meta.get("screenshots", []), *[fact] * (num_unread > 0)]
    return replace(
        batch, meta={**batch.meta, **({"screenshots": facts} if facts else {})}
    )


def _picture_values(row: Any) -> Sequence[object]:  # noqa: ANN401 of Arrow or Python
    row = row.as_py() if hasattr(row, "as_py") else row
    if isinstance(row, Mapping) and {"image", "images"} & row.keys():
        row = row.get("image", row.get("images"))  # verl's `multi_modal_data`
    values = row if isinstance(row, list | tuple) else [row]
    return [value for value in values if value is not None]


_PICTURES = ("multi_modal_data", "images")


@dataclass(frozen=True, kw_only=True)
class Table:
    """The columns of a table by the number of their values.

    Attributes
    ----------
    fields : mapping of str to rows
        Columns with several values per sample, read when they are looked up.
    columns : mapping of str to sequence
        Columns with one value per sample.
    info : mapping of str to object
        Values for the whole batch.
    left_out : sequence of str
        Columns that a Batch cannot hold.
    marks : sequence of str
        Names in the file's metadata, which identify the writer.
    """

    fields: Mapping[str, Any]
    columns: Mapping[str, Any]
    info: Mapping[str, Any] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    marks: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [*self.fields, *self.columns, *self.info]

    def renamed(self, names: Mapping[str, str]) -> Table:
        """Return the same columns, some of them under other names."""
        parts = (self.fields, self.columns, self.info)
        fields, columns, info = (LazyFields.rename(part, names) for part in parts)
        return replace(self, fields=fields, columns=columns, info=info)


def batch_from_table(table: Table, source: Source) -> Batch:
    """Build a batch from columns under verl's names or ours.

    `meta["left_out"]` names what a Batch cannot hold.

    Raises
    ------
    LoadError
        If a required column is missing or the columns do not fit together.
    """
    fields, columns = LazyFields.watch(table.fields), expand_entries(table.columns)
    if TURN_SCORES in fields:  # its lists of numbers look like a field per token
        columns[TURN_SCORES] = [row.tolist() for row in row_list(fields[TURN_SCORES])]
    if "group_ids" in columns:
        columns["uid"] = columns.pop("group_ids")
    ids = columns.pop("sample_ids", None)
    pictures = {name: columns.pop(name) for name in _PICTURES if name in columns}
    batch = batch_from_fields(
        fields,
        source=source.path,
        columns=columns,
        info=table.info,
        sample_ids=None if ids is None else [str(name) for name in ids],
    )
    inputs = columns.pop("multi_modal_inputs", None)
    used = {*batch.sample_columns, *batch.meta["sampling"], *_converted(batch)}
    others = [name for name in (*columns, *table.info) if name not in used]
    unread = [*table.left_out, *fields.left_out, *others]
    entry = left_out_entry([*left_out_of(batch), *unread])
    batch = replace(batch, meta={**batch.meta, **entry})
    batch = batch if inputs is None else with_screenshots(batch, inputs, source)
    for name, rows in pictures.items():
        batch = with_picture_column(batch, name, rows, source)
    return batch


def _converted(batch: Batch) -> list[str]:
    """Return the names of the columns that became other parts of the batch."""
    facts = ["global_steps", "global_step", "step", "old_log_probs_source", RECORDS]
    scores = [TURN_SCORES] * ("turn_score" in batch.round_columns)
    groups, rewards = batch.group_ids is not None, batch.rewards is not None
    return [*facts, *scores, *["uid"] * groups, *["rewards"] * rewards]


_TENSORS = (StoredTensor, Tensor)  # in the file, or made from a list in it


def read_rows(value: Value) -> Tensor | Ragged | list[Tensor]:
    """Copy a field out of the file."""
    match value:
        case StoredTensor():
            return value.read()
        case StoredJagged():
            lengths = None if value.lengths is None else value.lengths.read()
            return close_gaps(
                value.values.read(), value.offsets.read(), lengths, value.dim
            )
    return [_tensor(row) for row in value if isinstance(row, _TENSORS)]


def stored_table(
    fields: Mapping[str, Value],
    columns: Mapping[str, Any],
    info: Mapping[Any, Any],
    source: Source,
) -> Table:
    """Classify the content of a file: rows, one value per sample, one for all."""
    single = {k: v for k, v in fields.items() if _is_single(v)}
    values = {k: read_column(v, source) for k, v in fields.items() if _is_column(v)}
    rows = {k: v for k, v in fields.items() if k not in {*single, *values}}
    facts = {str(k): scalar_value(v) for k, v in info.items()}
    return Table(
        fields=LazyFields(rows, lambda name: read_rows(rows[name])),
        columns={**columns, **values},
        info={**facts, **{k: v.read().item() for k, v in single.items()}},
    )


def _is_single(value: Value) -> TypeGuard[StoredTensor]:
    return isinstance(value, StoredTensor) and not value.shape


def _is_column(value: Value) -> bool:
    if isinstance(value, StoredTensor):
        return len(value.shape) == 1
    return isinstance(value, list) and not all(map(_is_row, value))


def _is_row(value: object) -> bool:
    return isinstance(value, _TENSORS) and len(value.shape) > 0


def _tensor(row: StoredTensor | Tensor) -> Tensor:
    return row.read() if isinstance(row, StoredTensor) else row


def read_column(value: object, source: Source) -> Any:  # noqa: ANN401 array or list
    """Return a column of one value per sample, read from the file."""
    if isinstance(value, StoredTensor):
        return value.read().numpy()
    array = stored_array(value, source)
    if isinstance(array, StoredArray):
        return array.read()
    items = as_list(value if array is None else array)
    return [_plain_item(item, source) for item in items]


def _plain_item(item: object, source: Source) -> object:
    """Return a scalar of torch or numpy as a Python value; other values unchanged."""
    tensor = find_tensor(item, source)
    if isinstance(tensor, StoredTensor) and not tensor.shape:
        return tensor.read().item()
    return scalar_value(item)


def as_list(value: object) -> list[object]:
    """Return a value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []

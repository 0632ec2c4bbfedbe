"""A batch as a table: values per token, per sample, and for the whole batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeGuard

from torch import Tensor

from rounddiag.errors import LoadError
from rounddiag.loaders.assembly.images import with_screenshots
from rounddiag.loaders.fields.mapping import batch_from_fields
from rounddiag.loaders.lazy.arrays import (
    Ragged,
    StoredArray,
    compact,
    scalar_value,
    stored_array,
)
from rounddiag.loaders.lazy.fields import LazyFields
from rounddiag.loaders.lazy.tensors import StoredJagged, StoredTensor
from rounddiag.loaders.source import left_out_entry
from rounddiag.vision import EncodedScreenshot

if TYPE_CHECKING:
    from rounddiag.batch import Batch
    from rounddiag.loaders.lazy.tensors import Value
    from rounddiag.loaders.source import Source


def with_encoded(batch: Batch, rows: Iterable[object], source: Source) -> Batch:
    """Return a batch with the pictures of each row: one, a list, or none.

    A picture is bytes, or a struct of `bytes` and `path`. A path is never opened, since
    a file must not make us read others: pictures that are only a path are left out and
    counted in `meta["screenshots"]`.

    Raises
    ------
    LoadError
        If the rows are not as many as the samples.
    """
    try:
        pictures = [[_data(picture) for picture in _pictures(row)] for row in rows]
    except ValueError as error:  # structs of Arrow whose names are no text
        raise source.damaged(found=f"{error!s:.80}") from error
    if len(pictures) != len(batch):
        raise LoadError.build(
            file=source.path,
            key="images",
            expected=f"{len(batch)} rows, one a sample",
            found=f"{len(pictures)}",
            advice="Save a list of pictures for every sample; it may be empty.",
        )
    images = tuple(
        tuple(EncodedScreenshot(data=data) for data in row if data is not None)
        for row in pictures
    )
    num_paths = sum(row.count(None) for row in pictures)
    fact = f"{num_paths} of `images` are not in the file: paths are not opened"
    entry = {"screenshots": [fact]} if num_paths else {}
    return replace(batch, images=images, meta={**batch.meta, **entry})


def _pictures(row: Any) -> Sequence[object]:  # noqa: ANN401 of Arrow or Python
    row = row.as_py() if hasattr(row, "as_py") else row
    pictures = row if isinstance(row, list | tuple) else [row]
    return [picture for picture in pictures if picture is not None]


def _data(picture: object) -> bytes | None:
    data = picture.get("bytes") if isinstance(picture, Mapping) else picture
    return data if isinstance(data, bytes) else None


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
        Columns that a Batch has no place for.
    marks : sequence of str
        Names in the file's metadata, which tell its writer.
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

    What a batch has no place for is named in `meta["left_out"]`.

    Raises
    ------
    LoadError
        If a required column is missing or the columns do not fit together.
    """
    fields, columns = LazyFields.watch(table.fields), dict(table.columns)
    if "group_ids" in columns:
        columns["uid"] = columns.pop("group_ids")
    ids, pictures = columns.pop("sample_ids", None), columns.pop("images", None)
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
    entry = left_out_entry([*table.left_out, *fields.left_out, *others])
    batch = replace(batch, meta={**batch.meta, **entry})
    if pictures is not None:
        return with_encoded(batch, pictures, source)
    return batch if inputs is None else with_screenshots(batch, inputs, source)


def _converted(batch: Batch) -> list[str]:
    """Return the columns that became other parts of the batch."""
    facts = ["global_steps", "global_step", "step", "old_log_probs_source"]
    groups, rewards = batch.group_ids is not None, batch.rewards is not None
    return [*facts, *["uid"] * groups, *["rewards"] * rewards]


_TENSORS = (StoredTensor, Tensor)  # in the file, or made from a list in it


def _read_rows(value: Value) -> Tensor | Ragged | list[Tensor]:
    """Copy a field out of the file."""
    match value:
        case StoredTensor():
            return value.read()
        case StoredJagged():
            lengths = None if value.lengths is None else value.lengths.read()
            return compact(
                value.values.read(), value.offsets.read(), lengths, value.dim
            )
    return [_tensor(row) for row in value if isinstance(row, _TENSORS)]


def stored_table(
    fields: Mapping[str, Value],
    columns: Mapping[str, Any],
    info: Mapping[Any, Any],
    source: Source,
) -> Table:
    """Sort the content of a file: rows, one value per sample, one value for all."""
    single = {k: v for k, v in fields.items() if _is_single(v)}
    values = {k: plain_values(v, source) for k, v in fields.items() if _is_column(v)}
    rows = {k: v for k, v in fields.items() if k not in {*single, *values}}
    facts = {str(k): scalar_value(v) for k, v in info.items()}
    return Table(
        fields=LazyFields(rows, lambda name: _read_rows(rows[name])),
        columns={**columns, **values},
        info={**facts, **{k: v.read().item() for k, v in single.items()}},
    )


def _is_single(value: Value) -> TypeGuard[StoredTensor]:
    return isinstance(value, StoredTensor) and not value.shape


def _is_column(value: Value) -> bool:
    if isinstance(value, StoredTensor):
        return len(value.shape) == 1
    return isinstance(value, list) and not all(
        isinstance(row, _TENSORS) for row in value
    )


def _tensor(row: StoredTensor | Tensor) -> Tensor:
    return row.read() if isinstance(row, StoredTensor) else row


def plain_values(value: object, source: Source) -> Any:  # noqa: ANN401 array or list
    """Return a column of one value per sample, read from the file."""
    if isinstance(value, StoredTensor):
        return value.read().numpy()
    array = stored_array(value, source)
    if isinstance(array, StoredArray):
        return array.read()
    return [scalar_value(item) for item in as_list(value if array is None else array)]


def as_list(value: object) -> list[object]:
    """Return a value if it is a list, else an empty list."""
    return value if isinstance(value, list) else []

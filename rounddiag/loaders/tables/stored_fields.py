"""Fields that are still in a file, read when a Batch needs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from torch import Tensor

from rounddiag.loaders.tables.table import Table
from rounddiag.loaders.tensors.numpy_nodes import (
    StoredArray,
    scalar_value,
    stored_array,
)
from rounddiag.loaders.tensors.ragged import Ragged, compact
from rounddiag.loaders.tensors.stored import StoredTensor
from rounddiag.loaders.tensors.tensor_nodes import StoredJagged

if TYPE_CHECKING:
    from rounddiag.loaders.source import Source
    from rounddiag.loaders.tensors.tensordict import Value

_TENSORS = (StoredTensor, Tensor)  # in the file, or made of a list in it


class StoredFields(Mapping[str, Any]):
    """Fields that are read from the file when they are looked up."""

    def __init__(self, fields: Mapping[str, Value]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Tensor | Ragged | list[Tensor]:
        match self._fields[name]:
            case StoredTensor() as tensor:
                return tensor.read()
            case StoredJagged() as nested:
                lengths = None if nested.lengths is None else nested.lengths.read()
                return compact(
                    nested.values.read(), nested.offsets.read(), lengths, nested.dim
                )
            case rows:
                return [_tensor(row) for row in rows if isinstance(row, _TENSORS)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def stored_table(
    fields: Mapping[str, Value],
    columns: Mapping[str, Any],
    info: Mapping[Any, Any],
    source: Source,
) -> Table:
    """Divide what is in a file: rows, one value a sample, one value for all."""
    single = {k: v for k, v in fields.items() if _is_single(v)}
    values = {k: plain_values(v, source) for k, v in fields.items() if _is_column(v)}
    rows = {k: v for k, v in fields.items() if k not in {*single, *values}}
    facts = {str(k): scalar_value(v) for k, v in info.items()}
    return Table(
        fields=StoredFields(rows),
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
    """Return what there is one value of a sample, read from the file."""
    if isinstance(value, StoredTensor):
        return value.read().numpy()
    array = stored_array(value, source)
    if isinstance(array, StoredArray):
        return array.read()
    return [scalar_value(item) for item in as_list(value if array is None else array)]


def as_list(value: object) -> list[object]:
    """Return a list of the file; nothing where it is none."""
    return value if isinstance(value, list) else []

"""Numbers in memory: tensors, arrays, lists, and rows of different lengths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

_KINDS = (
    (type(None), "nothing"),
    (int | float, "a number"),
    (str, "text"),
    (bytes, "bytes"),
    (list | tuple, "a list"),
    (torch.Tensor, "a single tensor"),
    (np.ndarray, "a single numpy array"),
)


def describe_kind(value: object) -> str:
    """Describe the kind of a value, for a message.

    Examples
    --------
    >>> describe_kind(None), describe_kind([5]), describe_kind({5})
    ('nothing', 'a list', 'a value of type set')
    """
    names = [name for kind, name in _KINDS if isinstance(value, kind)]
    return names[0] if names else f"a value of type {type(value).__name__}"


def build_offsets(lengths: Tensor) -> Tensor:
    """Return where each row starts when rows of these lengths are concatenated.

    Examples
    --------
    >>> build_offsets(torch.tensor([3, 0, 2]))
    tensor([0, 3, 3, 5])
    """
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def array_tensor(array: np.ndarray[Any, Any]) -> Tensor:
    """Return numbers as a tensor that may be written to; unsigned ones as int64.

    torch has few operations on unsigned numbers, and no other byte orders.

    Examples
    --------
    >>> array_tensor(np.array([1, 2], dtype=">u4"))
    tensor([1, 2])
    """
    dtype = np.int64 if array.dtype.kind == "u" else array.dtype.newbyteorder("=")
    return torch.from_numpy(np.require(array, dtype, "W"))


def _list_array(values: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    """Return a list of numbers as an array, None as NaN; None for other lists.

    Examples
    --------
    >>> _list_array([1, None]), _list_array(["a"])
    (array([ 1., nan]), None)
    """
    try:
        array = np.array(values)
        if array.dtype == object and not any(map(_is_long, array.ravel())):
            array = np.array(values, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
    return array if array.dtype.kind in "biuf" else None


def _is_long(value: object) -> bool:
    """Return whether an integer does not fit into int64: as a float it is another."""
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 63


def row_tensors(values: Iterable[Any]) -> list[Tensor]:
    """Return rows of numbers as tensors in host memory.

    Examples
    --------
    >>> row_tensors([[5, 6], np.array([7.0])])
    [tensor([5, 6]), tensor([7.], dtype=torch.float64)]
    """
    rows = [_row_tensor(row, index) for index, row in enumerate(values)]
    # An empty list has no dtype.
    dtype = next((row.dtype for row in rows if row.numel()), None)
    return [row if row.numel() or dtype is None else row.to(dtype) for row in rows]


def _row_tensor(value: Any, index: int) -> Tensor:  # noqa: ANN401 what should be a row
    array = _list_array(value) if isinstance(value, list | tuple) else value
    if isinstance(array, torch.Tensor):
        return array.detach()
    if isinstance(array, np.ndarray) and array.dtype.kind in "biuf":
        return array_tensor(array)
    other = " of other values" if isinstance(value, list | tuple) else ""
    raise ValueError(f"{describe_kind(value)}{other} in row {index}")


@dataclass(frozen=True, kw_only=True)
class Ragged:
    """Rows that are concatenated along one dimension of `values`.

    Attributes
    ----------
    values: The rows, end to end.
    offsets: Tensor of int64, shape (num_rows + 1,). Where each row starts.
    dim: The dimension along which they are concatenated.
    is_padded: Whether the rows are those of a padded tensor, all of the same length.
    """

    values: Tensor
    offsets: Tensor
    dim: int = 0
    is_padded: bool = False

    def __post_init__(self) -> None:
        if self.values.is_neg():  # torch's negative bit, which numpy does not have
            object.__setattr__(self, "values", self.values.resolve_neg())

    @property
    def lengths(self) -> Tensor:
        """Length of each row."""
        return self.offsets.diff()

    def rows(self) -> list[Tensor]:
        """Return the rows, as views."""
        return list(self.values.split(self.lengths.tolist(), dim=self.dim))

    def tails(self, lengths: Tensor) -> Ragged:
        """Return the last `lengths` positions of each row.

        Examples
        --------
        >>> field = as_ragged([torch.tensor([1, 2, 3]), torch.tensor([4, 5])])
        >>> field.tails(torch.tensor([2, 1])).values
        tensor([2, 3, 5])
        """
        pairs = zip(self.rows(), lengths.tolist(), strict=True)
        tails = _join([row[len(row) - length :] for row, length in pairs])
        return Ragged(
            values=tails.values, offsets=tails.offsets, is_padded=self.is_padded
        )


def as_ragged(value: object) -> Ragged:
    """Return the rows of a field: a padded or nested tensor or array, or a list."""
    match value:
        case Ragged():
            return value
        case torch.Tensor() if value.is_nested:
            return _ragged_from_nested(value)
        case torch.Tensor() if value.dim() == 2:  # noqa: PLR2004 rows and positions
            count, width = value.shape
            offsets = torch.arange(count + 1, device=value.device) * width
            return Ragged(values=value.reshape(-1), offsets=offsets, is_padded=True)
        case np.ndarray() if value.dtype != object:
            return as_ragged(array_tensor(value))
        case list() | tuple() | np.ndarray():
            return _join(row_tensors(value))
    raise ValueError("no rows")


def row_list(value: object) -> list[Tensor]:
    """Return the rows of a field; a row may have several dimensions."""
    if isinstance(value, torch.Tensor) and not value.is_nested and value.dim() > 1:
        return list(value)
    is_list = isinstance(value, list | tuple)
    return row_tensors(value) if is_list else as_ragged(value).rows()  # type: ignore[arg-type]


def close_gaps(
    values: Tensor, offsets: Tensor, lengths: Tensor | None, dim: int
) -> Ragged:
    """Return the rows of a nested tensor without the gaps that `lengths` leaves."""
    offsets = offsets.long()
    if lengths is None:
        rises = offsets.dim() == 1 and bool((offsets.diff() >= 0).all())
        if not rises or offsets[[0, -1]].tolist() != [0, values.shape[dim]]:
            raise ValueError("offsets that do not rise from 0 to the end")
        return Ragged(values=values, offsets=offsets, dim=dim)
    pairs = zip(offsets.tolist(), lengths.tolist(), strict=False)
    return _join([values.narrow(dim, start, size) for start, size in pairs], dim)


def _ragged_from_nested(value: Tensor) -> Ragged:
    if value.layout != torch.jagged:
        return _join(list(value.unbind()))
    ragged_dim = int(getattr(value, "_ragged_idx", 1)) - 1
    nested: Any = value  # torch has no types for nested tensors
    return close_gaps(value.values(), nested.offsets(), nested.lengths(), ragged_dim)


def _join(rows: Sequence[Tensor], dim: int = -1) -> Ragged:
    sizes = torch.tensor([row.shape[dim] for row in rows], dtype=torch.int64)
    values = torch.cat(list(rows), dim=dim) if rows else torch.empty(0)
    last = values.dim() - 1
    return Ragged(
        values=values, offsets=build_offsets(sizes), dim=last if dim < 0 else dim
    )

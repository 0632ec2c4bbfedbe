"""numpy arrays and scalars in a pickle; `Ragged`, rows of different lengths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.batch.layout import build_offsets
from rounddiag.loaders.lazy.tensors import as_span
from rounddiag.loaders.pickle.placeholders import Node, TextBytes
from rounddiag.loaders.source import Span, describe_kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from rounddiag.loaders.source import Source


_PLAIN = re.compile(r"[biufSU]\d{1,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """A numpy array of plain values in a file."""

    data: Span
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool

    def read(self) -> np.ndarray[Any, Any]:
        """Copy it out of the file."""
        data = self.data.part(0, prod(self.shape) * self.dtype.itemsize).read()
        flat: np.ndarray[Any, Any] = np.frombuffer(data, dtype=self.dtype)
        if self.is_fortran:
            return flat.reshape(self.shape[::-1]).T
        return flat.reshape(self.shape)


def stored_array(value: object, source: Source) -> StoredArray | list[object] | None:
    """Return an array of plain values, the items of an object array, or None."""
    if isinstance(value, StoredArray):
        return value
    if not isinstance(value, Node):
        return None
    match value.name.rpartition(".")[2], value.args, value.state:
        case "_reconstruct", _, (_, tuple(shape), Node() as dtype, fortran, data):
            pass
        case "_frombuffer", (data, Node() as dtype, tuple(shape), fortran), _:
            fortran = fortran == "F"
        case _:
            return None
    if isinstance(data, list):
        return data
    plain = _dtype(dtype)
    sizes = tuple(n for n in shape if isinstance(n, int) and 0 <= n < 1 << 40)
    if plain is None or len(sizes) != len(shape):
        return None
    if not isinstance(data, bytes | Span | TextBytes):
        raise source.damage_error(found="an array without data")
    return StoredArray(
        data=as_span(data, source), dtype=plain, shape=sizes, is_fortran=bool(fortran)
    )


def scalar_value(value: object) -> object:
    """Return a scalar of numpy as a Python value; other values unchanged."""
    match value:
        case Node(name, (Node() as dtype, bytes(data))) if name.endswith(
            "multiarray.scalar"
        ):
            plain = _dtype(dtype)
            if plain is not None and plain.itemsize == len(data):
                return np.frombuffer(data, dtype=plain)[0].item()
    return value


def _dtype(node: Node) -> np.dtype[Any] | None:
    """Return a dtype of plain values; None for dates, records and objects."""
    match node:
        case Node("numpy.dtype", (str(code), *_), state=(_, order, *_)):
            if _PLAIN.fullmatch(code) and order in ("<", ">", "|", "="):
                try:
                    dtype = np.dtype(f"{order}{code}")
                except TypeError:  # such as a number of three bytes
                    return None
                return dtype if dtype.itemsize else None
    return None


@dataclass(frozen=True, kw_only=True)
class Ragged:
    """Rows that are concatenated along one dimension of `values`.

    Attributes
    ----------
    values : Tensor
        The rows, end to end.
    offsets : Tensor of int64, shape (num_rows + 1,)
        Where each row starts.
    dim : int
        The dimension along which they are concatenated.
    is_padded : bool
        Whether the rows are those of a padded tensor, all of the same length.
    """

    values: Tensor
    offsets: Tensor
    dim: int = 0
    is_padded: bool = False

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
        tails = as_ragged([row[len(row) - length :] for row, length in pairs])
        return Ragged(
            values=tails.values, offsets=tails.offsets, is_padded=self.is_padded
        )


def as_ragged(value: object) -> Ragged:
    """Return the rows of a field."""
    match value:
        case Ragged():
            return value
        case torch.Tensor() if value.is_nested:
            return _ragged_from_nested(value)
        case torch.Tensor() if value.dim() == 2:  # noqa: PLR2004 rows and positions
            return _ragged_from_padded(value)
        case np.ndarray() if value.dtype != object:
            return as_ragged(torch.from_numpy(value))
        case list() | tuple() | np.ndarray():
            return _join(_rows(value))
    msg = "no rows"
    raise ValueError(msg)


def _rows(values: Any) -> list[Tensor]:  # noqa: ANN401 a sequence of rows
    return [_row(row, index) for index, row in enumerate(values)]


def _row(value: Any, index: int) -> Tensor:  # noqa: ANN401 what should be a row
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        other = " of other values" if isinstance(value, list | tuple) else ""
        msg = f"{describe_kind(value)}{other} in row {index}"
        raise ValueError(msg) from error


def row_list(value: object) -> list[Tensor]:
    """Return the rows of a field; a row may have several dimensions."""
    if isinstance(value, torch.Tensor) and not value.is_nested and value.dim() > 1:
        return list(value)
    is_list = isinstance(value, list | tuple)
    return _rows(value) if is_list else as_ragged(value).rows()


def close_gaps(
    values: Tensor, offsets: Tensor, lengths: Tensor | None, dim: int
) -> Ragged:
    """Return the rows of a nested tensor without the gaps that `lengths` leaves."""
    offsets = offsets.long()
    if lengths is None:
        rises = offsets.dim() == 1 and bool((offsets.diff() >= 0).all())
        if not rises or offsets[[0, -1]].tolist() != [0, values.shape[dim]]:
            msg = "offsets that do not rise from 0 to the end"
            raise ValueError(msg)
        return Ragged(values=values, offsets=offsets, dim=dim)
    pairs = zip(offsets.tolist(), lengths.tolist(), strict=False)
    return _join([values.narrow(dim, start, size) for start, size in pairs], dim)


def _ragged_from_nested(value: Tensor) -> Ragged:
    if value.layout != torch.jagged:
        return _join(list(value.unbind()))
    ragged_dim = int(getattr(value, "_ragged_idx", 1)) - 1
    nested: Any = value  # torch has no types for nested tensors
    return close_gaps(value.values(), nested.offsets(), nested.lengths(), ragged_dim)


def _ragged_from_padded(value: Tensor) -> Ragged:
    count, width = value.shape[0], value.shape[-1]
    offsets = torch.arange(count + 1, device=value.device) * width
    return Ragged(values=value.reshape(-1), offsets=offsets, is_padded=True)


def _join(rows: Sequence[Tensor], dim: int = -1) -> Ragged:
    sizes = torch.tensor([row.shape[dim] for row in rows], dtype=torch.int64)
    values = torch.cat(list(rows), dim=dim) if rows else torch.empty(0)
    last = values.dim() - 1
    return Ragged(
        values=values, offsets=build_offsets(sizes), dim=last if dim < 0 else dim
    )

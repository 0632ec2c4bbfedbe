"""Nodes of a pickle that stand for numpy arrays and scalars."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.loaders.pickles.inert import Node, TextBytes
from rounddiag.loaders.source import Span
from rounddiag.loaders.tensors.tensor_nodes import as_span

if TYPE_CHECKING:
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
        count = 1
        for size in self.shape:
            count *= size
        data = self.data.part(0, count * self.dtype.itemsize).read()
        flat: np.ndarray[Any, Any] = np.frombuffer(data, dtype=self.dtype)
        if self.is_fortran:
            return flat.reshape(self.shape[::-1]).T
        return flat.reshape(self.shape)


def stored_array(value: object, source: Source) -> StoredArray | list[object] | None:
    """Return an array of plain values, the items of an array of objects, or None."""
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
        raise source.damaged(found="an array without data")
    return StoredArray(
        data=as_span(data, source), dtype=plain, shape=sizes, is_fortran=bool(fortran)
    )


def scalar_value(value: object) -> object:
    """Return a number that numpy wrapped as it is without numpy; others unchanged."""
    match value:
        case Node(name, (Node() as dtype, bytes(data))) if name.endswith(
            "multiarray.scalar"
        ):
            plain = _dtype(dtype)
            if plain is not None and plain.itemsize == len(data):
                return np.frombuffer(data, dtype=plain)[0].item()
    return value


def _dtype(node: Node) -> np.dtype[Any] | None:
    """Return a dtype of plain values; dates, records and objects are not needed."""
    match node:
        case Node("numpy.dtype", (str(code), *_), state=(_, order, *_)):
            if _PLAIN.fullmatch(code) and order in {"<", ">", "|", "="}:
                return np.dtype(f"{order}{code}")
    return None

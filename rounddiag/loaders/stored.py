"""Arrays that stay in their file until they are read.

====================  ============================================================
in the stream         here
====================  ============================================================
tensor                `StoredArray`: a view of the bytes of a storage
numpy array           the same; the items of an array of objects, as a list
nested tensor         `StoredJagged`
TensorDict            `read_tensordict`: its fields by name
====================  ============================================================
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rounddiag.columns.column import python_value
from rounddiag.columns.sources import Ragged, array_tensor, close_gaps
from rounddiag.core.columns import to_numpy
from rounddiag.loaders.pickle.placeholders import Name, Node, TextBytes
from rounddiag.loaders.source import Source, Span, damage_error
from rounddiag.loaders.torch_file import Storage, read_torch
from rounddiag.text.json_text import object_in

# In bytes. A tensor with stride 0 repeats its elements; up to this size it may be
# larger than its storage.
MAX_REPEATED = 1 << 28
_MAX_ROWS = MAX_REPEATED // 8  # that share one value: a list of pointers
MAX_NUMBER = 1 << 48  # of a shape, stride or offset

DTYPES = {
    name: getattr(torch, name)
    for name in (
        *("bool", "uint8", "int8", "int16", "int32", "int64"),
        *("uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64"),
    )
}
_WIDTHS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}  # bits of any dtype
# torch supports few operations on these; token ids fit in int64.
_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredArray:
    """A tensor or an array in a file: a view of bytes, validated on construction.

    Attributes
    ----------
    storage: The bytes of the storage.
    dtype: numpy's where torch has none: texts, and other byte orders.
    offset: Of the first element, in elements.
    is_negated: Whether the bytes are those of its negative: torch's negative bit.
    """

    storage: Span
    dtype: torch.dtype | np.dtype[Any]
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    is_negated: bool = False

    def __post_init__(self) -> None:
        numbers = (self.offset, *self.shape, *self.stride)
        is_valid = len(self.shape) == len(self.stride) and all(
            0 <= n < MAX_NUMBER for n in numbers
        )
        if not is_valid:
            raise damage_error(found="a tensor of an impossible shape")
        in_storage = self._size * self.dtype.itemsize
        self.storage.part(self.offset * self.dtype.itemsize, in_storage)
        if self.num_elements * self.dtype.itemsize > max(in_storage, MAX_REPEATED):
            raise damage_error(found="a tensor much larger than its storage")

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def _size(self) -> int:
        if not self.num_elements:
            return 0
        steps = zip(self.shape, self.stride, strict=True)
        return 1 + sum((size - 1) * step for size, step in steps)

    @property
    def num_dims(self) -> int:
        """0 for a single value, 1 for one value per row, 2 for rows of numbers."""
        is_text = isinstance(self.dtype, np.dtype) and self.dtype.kind not in "iuf"
        return min(len(self.shape), 1 if is_text else 2)

    def array(self) -> np.ndarray[Any, Any]:
        """Copy it out of the file as an array of numpy."""
        if isinstance(self.dtype, np.dtype):
            return self._view(self.dtype)
        return to_numpy(self.read())

    def read(self) -> Tensor:
        """Copy numbers out of the file."""
        if isinstance(self.dtype, np.dtype):
            return array_tensor(self._view(self.dtype))
        bits = torch.from_numpy(self._view(np.dtype(_WIDTHS[self.dtype.itemsize])))
        if self.dtype == torch.bool:
            return bits != 0
        values = bits.view(self.dtype)
        values = values.neg() if self.is_negated else values
        return values.long() if self.dtype in _UNSIGNED else values

    def _view(self, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        if not self.num_elements:
            return np.empty(self.shape, dtype=dtype)
        data = np.empty(self._size * dtype.itemsize, dtype=np.uint8)
        self.storage.part(self.offset * dtype.itemsize, len(data)).read_into(data.data)
        strides = [step * dtype.itemsize for step in self.stride]
        view: Any = np.ndarray(self.shape, dtype, data, strides=strides)
        return np.ascontiguousarray(view).reshape(self.shape)

    def rows(self, start: int, stop: int) -> StoredArray:
        """Return some of its rows, still in the file."""
        return replace(
            self,
            offset=self.offset + start * self.stride[0],
            shape=(stop - start, *self.shape[1:]),
        )


def contiguous(
    span: Span, dtype: torch.dtype | np.dtype[Any], shape: tuple[int, ...]
) -> StoredArray:
    """Return the array whose elements fill the start of a span.

    Examples
    --------
    >>> from pathlib import Path
    >>> from rounddiag.loaders.source import Source
    >>> data = bytes([1, 0, 2, 0])
    >>> span = Source(path=Path("f"), size=4, data=data).whole()
    >>> contiguous(span, torch.int16, (2,)).read()
    tensor([1, 2], dtype=torch.int16)
    """
    stride = tuple(prod(shape[at + 1 :]) for at in range(len(shape)))
    return StoredArray(storage=span, dtype=dtype, offset=0, shape=shape, stride=stride)


def numpy_array(
    span: Span, dtype: np.dtype[Any], shape: tuple[int, ...], *, is_fortran: bool
) -> StoredArray:
    """Return an array of numpy that fills the start of a span, in either order."""
    is_known = dtype.isnative and dtype.name in DTYPES
    order = -1 if is_fortran else 1
    whole = contiguous(span, DTYPES[dtype.name] if is_known else dtype, shape[::order])
    return StoredArray(
        storage=span,
        dtype=whole.dtype,
        offset=0,
        shape=shape,
        stride=whole.stride[::order],
    )


_VIEWS = {f"torch._utils._rebuild_tensor{kind}" for kind in ("", "_v2", "_v3")}
_TYPED = "torch._tensor._rebuild_from_type_v2"
_NESTED = "torch.nested._internal.nested_tensor._rebuild_njt"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJagged:
    """A nested tensor in a file: values end to end, and the start of each row.

    `dim` is the dimension of `values` along which the rows follow each other.
    """

    values: StoredArray
    offsets: StoredArray
    lengths: StoredArray | None
    dim: int

    def read(self) -> Ragged:
        """Copy its rows out of the file."""
        lengths = None if self.lengths is None else self.lengths.read()
        return close_gaps(self.values.read(), self.offsets.read(), lengths, self.dim)


def find_array(value: object) -> StoredArray | StoredJagged | list[object] | None:
    """Return the tensor or array that a value of a pickle represents.

    The items of an array of objects; None for other values.
    """
    if isinstance(value, StoredArray | StoredJagged):
        return value
    if not isinstance(value, Node):
        return None
    if value.name == _TYPED:  # unwrapped once, so that nesting cannot be deep
        value = _unwrap_typed(value)
    if value.name in _VIEWS:
        return _view(value.args)
    if value.name == "torch._utils._rebuild_parameter":
        return stored_tensor(value.args[0]) if value.args else None
    if value.name == _NESTED:
        return _read_nested(value.args)
    return _numpy(value)


def find_tensor(value: object) -> StoredArray | None:
    """Return the plain tensor or array that a value represents, or None."""
    array = find_array(value)
    return array if isinstance(array, StoredArray) else None


_PLAIN = re.compile(r"[biufSU]\d{1,4}")


def _numpy(node: Node) -> StoredArray | list[object] | None:
    match node.name.rpartition(".")[2], node.args, node.state:
        case "_reconstruct", _, (_, tuple(shape), Node() as dtype, fortran, data):
            pass
        case "_frombuffer", (data, Node() as dtype, tuple(shape), fortran), _:
            fortran = fortran == "F"
        case _:
            return None
    if isinstance(data, list):
        return _nested(data, shape)
    plain = _dtype(dtype)
    sizes = tuple(n for n in shape if isinstance(n, int) and 0 <= n < 1 << 40)
    if plain is None or len(sizes) != len(shape):
        return None
    if not isinstance(data, bytes | Span | TextBytes):
        raise damage_error(found="an array without data")
    return numpy_array(as_span(data), plain, sizes, is_fortran=bool(fortran))


_PIXELS = 3  # dimensions of an array that is a picture


def _nested(items: list[object], shape: tuple[object, ...]) -> list[object]:
    """Return the items of an array of objects as nested lists; pictures as arrays."""
    sizes = integers(shape)
    if prod(sizes) != len(items) or not len(sizes):
        raise damage_error(found="an array of objects of another size than its shape")
    depth = len(sizes) - 1
    if depth >= _PIXELS and all(type(v) is int and 0 <= v < 256 for v in items):  # noqa: PLR2004 a byte
        return [[*row] for row in np.array(items, dtype=np.uint8).reshape(sizes)]
    for size in reversed(sizes[1:] if len(items) else ()):
        items = [items[at : at + size] for at in range(0, len(items), size)]
    return items


def scalar_value(value: object) -> object:
    """Return a scalar of numpy or of a pickle, or any number, as a Python value."""
    match value:
        case Node(name, (Node() as dtype, bytes(data))) if name.endswith(
            "multiarray.scalar"
        ):
            plain = _dtype(dtype)
            if plain is not None and plain.itemsize == len(data):
                return np.frombuffer(data, dtype=plain)[0].item()
    return python_value(value)


def _dtype(node: Node) -> np.dtype[Any] | None:
    match node:
        case Node("numpy.dtype", (str(code), *_), state=(_, order, *_)):
            if _PLAIN.fullmatch(code) and order in ("<", ">", "|", "="):
                try:
                    dtype = np.dtype(f"{order}{code}")
                except TypeError:  # such as a number of three bytes
                    return None
                return dtype if dtype.itemsize else None
    return None


def stored_tensor(value: object) -> StoredArray:
    """Return the plain tensor that a value of a pickle represents."""
    if isinstance(value, Node) and value.name == _TYPED:
        value = _unwrap_typed(value)
    if isinstance(value, Node) and value.name in _VIEWS:
        return _view(value.args)
    raise damage_error(found="another value in place of a tensor")


def _unwrap_typed(node: Node) -> Node:
    match node.args:
        case (Name(function), Name(), tuple(args), *_):
            return Node(function, args)
    raise damage_error(found="a tensor of an unknown type")


def _view(args: tuple[object, ...]) -> StoredArray:
    match args:
        case (storage, int(offset), tuple(shape), tuple(stride), *rest):
            memory = _storage(storage)
            dtype = memory.dtype
            match rest:
                case (_, _, Name(name), *_):
                    dtype = DTYPES.get(name.removeprefix("torch."), dtype)
            if memory.span is not None:
                return StoredArray(
                    storage=memory.span,
                    dtype=dtype,
                    offset=offset,
                    shape=integers(shape),
                    stride=integers(stride),
                    is_negated=any(
                        isinstance(bits, dict) and bits.get("neg") is True
                        for bits in rest
                    ),
                )
    raise damage_error(found="a tensor without a storage")


def _storage(value: object) -> Storage:
    match value:
        case Node(
            "torch.storage._load_from_bytes", (Span() | bytes() | TextBytes() as inner,)
        ):
            value = read_torch(as_span(inner))
    if isinstance(value, Storage):
        return value
    raise damage_error(found="another value in place of a storage")


def _read_nested(args: tuple[object, ...]) -> StoredJagged:
    match args:
        case ({"values": values, "offsets": offsets, **others},):
            lengths, ragged = others.get("lengths"), others.get("_ragged_idx", 1)
            return assemble_jagged(
                stored_tensor(values),
                stored_tensor(offsets),
                None if lengths is None else stored_tensor(lengths),
                ragged,
            )
    raise damage_error(found="a nested tensor without values")


def assemble_jagged(
    values: StoredArray,
    offsets: StoredArray,
    lengths: StoredArray | None,
    ragged: object,
) -> StoredJagged:
    """Assemble a nested tensor.

    `ragged` is the ragged dimension, counted with the rows as dimension 0. tensordict
    up to 0.12.1 does not save it (None); then it is the last one, as in verl's files.
    """
    count = len(values.shape)
    dim = ragged - 1 if isinstance(ragged, int) else count - 1
    if not 0 <= dim < count:
        raise damage_error(found="a nested tensor of an impossible shape")
    return StoredJagged(values=values, offsets=offsets, lengths=lengths, dim=dim)


def as_span(data: Span | bytes | TextBytes) -> Span:
    """Return bytes of a pickle as a span; short or decoded bytes stay in memory."""
    if isinstance(data, Span):
        return data
    decoded = data.read() if isinstance(data, TextBytes) else data
    return Source(path=Path(), size=len(decoded), data=decoded).whole()


def integers(values: Sequence[object]) -> tuple[int, ...]:
    """Return a shape or stride of a pickle."""
    if not all(isinstance(value, int) for value in values):
        raise damage_error(found="a shape that is not of integers")
    return tuple(value for value in values if isinstance(value, int))


Value: TypeAlias = object  # a StoredArray, a StoredJagged, a list, or one plain value
UNREAD: dict[str, object] = {}  # a TensorDict in another: left out, and named
_CONSOLIDATED = "tensordict._reductions._rebuild_tensordict_files_consolidated"


def read_tensordict(value: object) -> dict[str, Value] | None:
    """Return the fields of a TensorDict, still in the file; None for other values."""
    match value:
        case Node("tensordict._reductions._make_td", (_, {"_tensordict": dict(td)})):
            return _from_call(td)
        case Node(name, (dict(parts), storage)) if name == _CONSOLIDATED:
            return _read_consolidated(parts, stored_tensor(storage))
    return None


def _from_call(entries: dict[object, object]) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    for key, value in entries.items():
        field = _rows(value) or find_array(value) or _datum(value)
        if isinstance(key, str):
            fields[key] = UNREAD if field is None else field
    return fields


def _rows(value: object) -> list[object] | None:
    """Return the values of a NonTensorStack, or one value repeated for all rows."""
    match value:
        case Node(state={"tensordicts": list(rows)}):
            return [_datum(row) for row in rows]
        case Node(
            state={
                "tensordict": Node(args=(_, {"_batch_size": (int(count),)})),
                "non_tensordict": {"data": data},
            }
        ) if 0 <= count <= _MAX_ROWS:
            return [data] * count
    return None


def _datum(row: object) -> object:
    match row:
        case Node(state={"non_tensordict": {"data": data}}):
            return data
    return None


def _read_consolidated(
    parts: Mapping[Any, Any], storage: StoredArray
) -> dict[str, Value]:
    """Read the leaves, which are tensors, and what stands beside them, which is not."""
    fields: dict[str, Value] = {}
    for key, leaf in object_in(parts.get("leaves")).items():
        if isinstance(key, str):
            fields[key], ragged = _leaf(leaf, storage)
            if key.startswith("<NJT_OFFSETS>"):
                name = key.removeprefix("<NJT_OFFSETS>")
                fields[name] = _nested_leaves(fields, name, ragged)
    tensors = {key: v for key, v in fields.items() if not key.startswith("<NJT")}
    return {**_beside_leaves(parts), **tensors}


def _beside_leaves(parts: Mapping[Any, Any]) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    for name, value in object_in(parts.get("non_tensors")).items():
        match value:  # one for all rows
            case (datum, [int(count), *_], _) if 0 <= count <= _MAX_ROWS:
                fields[str(name)] = [datum] * count
            case (datum, [], _):
                fields[str(name)] = datum
    for name, part in parts.items():
        match part:
            case {"cls": "NonTensorStack", "non_tensors": dict(rows)}:
                fields[str(name)] = [
                    v[0] for v in rows.values() if isinstance(v, tuple)
                ]
            case {"cls": str()}:
                fields[str(name)] = UNREAD
    return fields


def _leaf(leaf: object, storage: StoredArray) -> tuple[StoredArray, object]:
    match leaf:
        case (str(dtype), list(shape) | tuple(shape), int(start), int(stop), _, *rest):
            known = DTYPES.get(dtype.removeprefix("torch."))
            if known is not None:
                span = storage.storage.part(storage.offset + start, stop - start)
                sizes = integers(shape)
                return contiguous(span, known, sizes), rest[0] if rest else None
    raise damage_error(found="a TensorDict with a field of an unknown kind")


def _nested_leaves(fields: dict[str, Value], name: str, ragged: object) -> StoredJagged:
    values, offsets, lengths = (
        fields.get(f"<NJT_{part}>{name}") for part in ("VALUES", "OFFSETS", "LENGTHS")
    )
    if not (isinstance(values, StoredArray) and isinstance(offsets, StoredArray)):
        raise damage_error(found="a nested tensor without values")
    rows = lengths if isinstance(lengths, StoredArray) else None
    return assemble_jagged(values, offsets, rows, ragged)

"""Nodes of a pickle that stand for tensors, of torch or of numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rounddiag.loaders.pickles.inert import Name, Node, TextBytes
from rounddiag.loaders.source import Source, Span
from rounddiag.loaders.tensors.stored import DTYPES, StoredTensor
from rounddiag.loaders.tensors.torch_file import Storage, read_torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_VIEWS = {f"torch._utils._rebuild_tensor{kind}" for kind in ("", "_v2", "_v3")}
_TYPED = "torch._tensor._rebuild_from_type_v2"
_NESTED = "torch.nested._internal.nested_tensor._rebuild_njt"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredJagged:
    """A nested tensor in a file: values end to end, and where each row starts.

    `dim` is the dimension of `values` along which the rows follow each other.
    """

    values: StoredTensor
    offsets: StoredTensor
    lengths: StoredTensor | None
    dim: int


def stored(value: object, source: Source) -> StoredTensor | StoredJagged | None:
    """Return the tensor that a value of a pickle stands for; None for anything else."""
    if isinstance(value, StoredTensor):
        return value
    if not isinstance(value, Node):
        return None
    if value.name == _TYPED:  # a call in a call: made once, never deeper
        value = _call_of_type(value, source)
    if value.name in _VIEWS:
        return _view(value.args, source)
    if value.name == "torch._utils._rebuild_parameter":
        return stored_tensor(value.args[0], source) if value.args else None
    return _nested(value.args, source) if value.name == _NESTED else None


def stored_tensor(value: object, source: Source) -> StoredTensor:
    """Return the plain tensor that a value of a pickle stands for."""
    if isinstance(value, Node) and value.name == _TYPED:
        value = _call_of_type(value, source)
    if isinstance(value, Node) and value.name in _VIEWS:
        return _view(value.args, source)
    raise source.damaged(found="something else in the place of a tensor")


def _call_of_type(node: Node, source: Source) -> Node:
    match node.args:
        case (Name(function), Name(), tuple(args), *_):
            return Node(function, args)
    raise source.damaged(found="a tensor of an unknown type")


def _view(args: tuple[object, ...], source: Source) -> StoredTensor:
    match args:
        case (storage, int(offset), tuple(shape), tuple(stride), *rest):
            found = _storage(storage, source)
            dtype = found.dtype
            match rest:
                case (_, _, Name(name), *_):
                    dtype = DTYPES.get(name.removeprefix("torch."), dtype)
            if found.span is not None:
                return StoredTensor(
                    storage=found.span,
                    dtype=dtype,
                    offset=offset,
                    shape=integers(shape, source),
                    stride=integers(stride, source),
                )
    raise source.damaged(found="a tensor without a storage")


def _storage(value: object, source: Source) -> Storage:
    """Return a storage: of the file itself, or in a file of its own in the pickle."""
    match value:
        case Node(
            "torch.storage._load_from_bytes",
            (Span() | bytes() | TextBytes() as inner,),
        ):
            value = read_torch(as_span(inner, source))
    if isinstance(value, Storage):
        return value
    raise source.damaged(found="something else in the place of a storage")


def _nested(args: tuple[object, ...], source: Source) -> StoredJagged:
    match args:
        case ({"values": values, "offsets": offsets, **others},):
            found = stored_tensor(values, source)
            lengths, ragged = others.get("lengths"), others.get("_ragged_idx", 1)
            return jagged(
                found,
                stored_tensor(offsets, source),
                None if lengths is None else stored_tensor(lengths, source),
                ragged,
            )
    raise source.damaged(found="a nested tensor without values")


def jagged(
    values: StoredTensor,
    offsets: StoredTensor,
    lengths: StoredTensor | None,
    ragged: object,
) -> StoredJagged:
    """Put a nested tensor together.

    `ragged` counts the dimension of rows too; tensordict up to 0.12.1 does not save it
    (None): then it is the last dimension, as in all that verl saves.
    """
    count = len(values.shape)
    dim = ragged - 1 if isinstance(ragged, int) else count - 1
    if not 0 <= dim < count:
        raise values.storage.source.damaged(
            found="a nested tensor of an impossible shape"
        )
    return StoredJagged(values=values, offsets=offsets, lengths=lengths, dim=dim)


def as_span(data: Span | bytes | TextBytes, source: Source) -> Span:
    """Return where bytes of a pickle stand; short and decoded ones are in memory."""
    if isinstance(data, Span):
        return data
    decoded = data.read() if isinstance(data, TextBytes) else data
    return source.of_bytes(decoded).whole()


def integers(values: Sequence[object], source: Source) -> tuple[int, ...]:
    """Return a shape or stride of a pickle."""
    if not all(isinstance(value, int) for value in values):
        raise source.damaged(found="a shape that is not of integers")
    return tuple(value for value in values if isinstance(value, int))

"""A TensorDict in a file, in the two forms that tensordict writes.

`_rebuild_tensordict_files_consolidated(metadata, storage)`: one storage of bytes, and
for each key its dtype, shape, start, stop and padding (from tensordict 0.12.2 on, also
the ragged dimension). Nested tensors have three keys, `<NJT_VALUES>k`,
`<NJT_LENGTHS>k` and `<NJT_OFFSETS>k`.

`_make_td(cls, state)`: the tensors themselves in `state["_tensordict"]`; a value that
is no tensor is a `NonTensorStack` of `NonTensorData`, one a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rounddiag.loaders.pickles.inert import Node
from rounddiag.loaders.tensors.stored import DTYPES, StoredTensor, contiguous
from rounddiag.loaders.tensors.tensor_nodes import (
    StoredJagged,
    integers,
    jagged,
    stored,
    stored_tensor,
)

if TYPE_CHECKING:
    from rounddiag.loaders.source import Source

Value = StoredTensor | StoredJagged | list[object]
MAX_ROWS = 1 << 24  # that one value may stand for
_CONSOLIDATED = "tensordict._reductions._rebuild_tensordict_files_consolidated"


def read_tensordict(value: object, source: Source) -> dict[str, Value] | None:
    """Return the fields of a TensorDict, still in the file; None for anything else."""
    match value:
        case Node("tensordict._reductions._make_td", (_, {"_tensordict": dict(td)})):
            return _made(td, source)
        case Node(name, ({"leaves": dict(leaves)}, storage)) if name == _CONSOLIDATED:
            return _consolidated(leaves, stored_tensor(storage, source), source)
    return None


def _made(fields: dict[object, object], source: Source) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, value in fields.items():
        field = _rows(value) or stored(value, source)
        if isinstance(key, str) and field is not None:
            found[key] = field
    return found


def _rows(value: object) -> list[object] | None:
    """Return the values of a NonTensorStack, or the one value of all rows."""
    match value:
        case Node(state={"tensordicts": list(rows)}):
            return [_datum(row) for row in rows]
        case Node(
            state={
                "tensordict": Node(args=(_, {"_batch_size": (int(count),)})),
                "non_tensordict": {"data": data},
            }
        ) if 0 <= count < MAX_ROWS:
            return [data] * count
    return None


def _datum(row: object) -> object:
    match row:
        case Node(state={"non_tensordict": {"data": data}}):
            return data
    return None


def _consolidated(
    leaves: dict[object, object], storage: StoredTensor, source: Source
) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for key, leaf in leaves.items():
        if isinstance(key, str):
            found[key], ragged = _leaf(leaf, storage, source)
            if key.startswith("<NJT_OFFSETS>"):
                name = key.removeprefix("<NJT_OFFSETS>")
                found[name] = _nested(found, name, ragged, source)
    return {key: value for key, value in found.items() if not key.startswith("<NJT")}


def _leaf(
    leaf: object, storage: StoredTensor, source: Source
) -> tuple[StoredTensor, object]:
    match leaf:
        case (str(dtype), list(shape) | tuple(shape), int(start), int(stop), _, *rest):
            known = DTYPES.get(dtype.removeprefix("torch."))
            if known is not None:
                span = storage.storage.part(storage.offset + start, stop - start)
                sizes = integers(shape, source)
                return contiguous(span, known, sizes), rest[0] if rest else None
    raise source.damaged(found="a TensorDict with a field of an unknown kind")


def _nested(
    found: dict[str, Value], name: str, ragged: object, source: Source
) -> StoredJagged:
    values, offsets, lengths = (
        found.get(f"<NJT_{part}>{name}") for part in ("VALUES", "OFFSETS", "LENGTHS")
    )
    if not (isinstance(values, StoredTensor) and isinstance(offsets, StoredTensor)):
        raise source.damaged(found="a nested tensor without values")
    rows = lengths if isinstance(lengths, StoredTensor) else None
    return jagged(values, offsets, rows, ragged)

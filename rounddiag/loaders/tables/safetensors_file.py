"""Tensors in the format of safetensors: a length, a JSON header, and bytes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rounddiag.loaders.tensors.stored import DTYPES, StoredTensor, contiguous
from rounddiag.loaders.tensors.tensor_nodes import integers

if TYPE_CHECKING:
    from rounddiag.loaders.source import Source, Span

MAX_HEADER = 100_000_000  # of safetensors, as in its library
_SAFETENSORS = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
}


def safetensors_root(source: Source) -> dict[str, object]:
    """Return the tensors of a safetensors file, and what its metadata says, by name.

    Raises
    ------
    LoadError
        If the header is no JSON of tensors, or a tensor lies outside the file.
    """
    whole = source.whole()
    size = int.from_bytes(whole.part(0, 8).read(), "little")
    if size > MAX_HEADER:
        raise source.damaged(found=f"a safetensors header of {size} bytes")
    data = whole.part(8 + size, len(whole) - 8 - size)
    try:
        header = json.loads(whole.part(8, size).read())
    except (ValueError, RecursionError) as error:
        raise source.damaged(found="a safetensors header that is no JSON") from error
    info = header.pop("__metadata__", {})
    tensors = {name: _safetensor(entry, data) for name, entry in header.items()}
    return {**(info if isinstance(info, dict) else {}), **tensors}


def _safetensor(entry: object, data: Span) -> StoredTensor:
    match entry:
        case {
            "dtype": str(kind),
            "shape": list(shape),
            "data_offsets": [int(start), int(stop)],
        } if kind in _SAFETENSORS:
            span = data.part(start, stop - start)
            sizes = integers(shape, data.source)
            return contiguous(span, DTYPES[_SAFETENSORS[kind]], sizes)
    raise data.source.damaged(
        found="a tensor of an unknown kind in a safetensors header"
    )

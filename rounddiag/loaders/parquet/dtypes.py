"""The dtype that a column had, where the type in the file is another.

A tensor of int64 is stored as int32 where its values fit, bfloat16 as float32, times in
seconds as milliseconds. The field's metadata keeps what it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rounddiag.errors import LoadError

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

    Array = np.ndarray[Any, Any]

KEY = b"rounddiag.dtype"
_TORCH = (
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
_BY_NAME = {str(dtype).removeprefix("torch.").encode(): dtype for dtype in _TORCH}
_KINDS = "biufmMUS"
_MOST_TEXT = 1 << 26  # bytes of an array in which each text has the longest one's room


def tensor_mark(dtype: torch.dtype) -> dict[bytes, bytes]:
    """Return the mark of a tensor's dtype; none where it is to stay as stored.

    Examples
    --------
    >>> tensor_mark(torch.bfloat16)
    {b'rounddiag.dtype': b'bfloat16'}
    """
    name = str(dtype).removeprefix("torch.").encode()
    return {KEY: name} if name in _BY_NAME else {}


def marked_tensor(values: Tensor, field: pa.Field) -> Tensor:
    """Return a tensor in the dtype that it had when it was saved.

    Raises
    ------
    LoadError
        If torch has no dtype of that name.
    """
    mark = (field.metadata or {}).get(KEY)
    if mark is None:
        return values
    if mark not in _BY_NAME:
        raise _unknown(field, mark)
    return values.to(_BY_NAME[mark])


def array_mark(dtype: np.dtype[Any]) -> dict[bytes, bytes]:
    """Return the mark of an array's dtype; none for objects.

    Examples
    --------
    >>> array_mark(np.dtype("datetime64[s]"))
    {b'rounddiag.dtype': b'<M8[s]'}
    """
    return {KEY: dtype.str.encode()} if dtype.kind in _KINDS else {}


def marked_array(values: Array, field: pa.Field) -> Array:
    """Return an array in the dtype that it had when it was saved.

    Texts stay objects where fixed width would need far more room than they do.

    Raises
    ------
    LoadError
        If the mark is no dtype of numbers, times or texts.
    """
    mark = (field.metadata or {}).get(KEY)
    if mark is None:
        return values
    try:
        dtype = np.dtype(mark.decode())
    except (TypeError, ValueError, SyntaxError) as error:
        raise _unknown(field, mark) from error
    if dtype.kind not in _KINDS or dtype.subdtype is not None:
        raise _unknown(field, mark)
    is_text = dtype.kind in "US"
    if is_text and len(values) * dtype.itemsize > _MOST_TEXT:
        return values
    return values.astype(dtype, copy=False)


def _unknown(field: pa.Field, mark: bytes) -> LoadError:
    return LoadError.build(
        key=field.name,
        expected="the name of a dtype in the column's metadata",
        found=repr(mark[:40]),
        advice="Save the batch with `rounddiag.save`.",
    )

"""Tensors that are still in the file: where they are, and how to copy them out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from rounddiag.loaders.source import Span

# A tensor with stride 0 repeats itself: up to here it may be larger than its storage.
MAX_REPEATED = 1 << 28
MAX_NUMBER = 1 << 48  # of a shape, stride or offset

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    )
}
# torch can compute little with them; token ids fit in int64.
_UNSIGNED = {torch.uint16, torch.uint32, torch.uint64}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor in a file: a view on a storage, checked when it is made.

    Attributes
    ----------
    storage : Span
        The bytes of the storage.
    dtype : torch.dtype
    offset : int
        Of the first element, in elements.
    shape, stride : tuple of int
    """

    storage: Span
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def __post_init__(self) -> None:
        numbers = (self.offset, *self.shape, *self.stride)
        good = len(self.shape) == len(self.stride) and all(
            0 <= n < MAX_NUMBER for n in numbers
        )
        if not good:
            raise self.storage.source.damaged(found="a tensor of an impossible shape")
        in_storage = self._size * self.dtype.itemsize
        self.storage.part(self.offset * self.dtype.itemsize, in_storage)
        if self.num_elements * self.dtype.itemsize > max(in_storage, MAX_REPEATED):
            raise self.storage.source.damaged(
                found="a tensor much larger than its storage"
            )

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def _size(self) -> int:
        """Elements of the storage from the first to the last that is used."""
        if not self.num_elements:
            return 0
        steps = zip(self.shape, self.stride, strict=True)
        return 1 + sum((size - 1) * step for size, step in steps)

    def read(self) -> Tensor:
        """Copy it out of the file."""
        if not self.num_elements:
            return torch.empty(self.shape, dtype=self.dtype)
        width = self.dtype.itemsize
        raw = torch.empty(self._size * width, dtype=torch.uint8)
        self.storage.part(self.offset * width, len(raw)).read_into(raw.numpy().data)
        flat = raw != 0 if self.dtype == torch.bool else raw.view(self.dtype)
        if self.dtype in _UNSIGNED:
            flat = flat.long()
        return flat.as_strided(self.shape, self.stride).contiguous()

    def rows(self, start: int, stop: int) -> StoredTensor:
        """Return some of its rows, still in the file."""
        return StoredTensor(
            storage=self.storage,
            dtype=self.dtype,
            offset=self.offset + start * self.stride[0],
            shape=(stop - start, *self.shape[1:]),
            stride=self.stride,
        )


def contiguous(span: Span, dtype: torch.dtype, shape: tuple[int, ...]) -> StoredTensor:
    """Return the tensor whose elements fill the start of a span.

    Examples
    --------
    >>> from pathlib import Path
    >>> from rounddiag.loaders.source import Source
    >>> data = bytes([1, 0, 2, 0])
    >>> span = Source(path=Path("f"), size=4, data=data).whole()
    >>> contiguous(span, torch.int16, (2,)).read()
    tensor([1, 2], dtype=torch.int16)
    """
    stride = [1]
    for size in shape[:0:-1]:
        stride.insert(0, stride[0] * size)
    return StoredTensor(
        storage=span,
        dtype=dtype,
        offset=0,
        shape=shape,
        stride=tuple(stride[: len(shape)]),
    )

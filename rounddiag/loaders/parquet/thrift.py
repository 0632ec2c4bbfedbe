"""Thrift's compact protocol, as far as Parquet's footer and page headers use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 1, 2, 3, 7, 8, 9, 12
_INTEGERS = (4, 5, 6)
_BITS = 64  # of a number
_LONG = 15  # the size of a list that stands in bytes of its own


class Compact:
    """Reads values one after another; an IndexError where the bytes end too early.

    Parameters
    ----------
    data : bytes

    Attributes
    ----------
    at : int
        Where the next value starts.

    Examples
    --------
    >>> Compact(bytes([0x15, 6, 0x18, 1, 65, 0])).struct()
    {1: 3, 2: b'A'}
    """

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self) -> dict[int, Any]:
        """Return the fields of a struct by their numbers."""
        return {field: self.value(kind) for field, kind in self.fields()}

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and kind of each field; read its value before the next one."""
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._zigzag()
            yield field, head & 15

    def value(self, kind: int) -> Any:  # noqa: ANN401 of many kinds
        """Return a value; a list of anything but texts is passed over.

        Raises
        ------
        ValueError
            If Parquet has nothing of that kind.
        """
        if kind in _INTEGERS:
            return self._zigzag()
        if kind == _STRUCT:
            return self.struct()
        if kind == _BINARY:
            return self._take(self._varint())
        if kind == _LIST:
            return self._list()
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind not in (_BYTE, _DOUBLE):
            msg = f"a field of kind {kind}"
            raise ValueError(msg)
        return self._take(1 if kind == _BYTE else 8)

    def items(self) -> Iterator[int]:
        """Yield the kind of each item of a list; read it before the next one."""
        head = self._byte()
        size = self._varint() if head >> 4 == _LONG else head >> 4
        kind = head & 15
        for _ in range(size):
            yield _BYTE if kind in (_TRUE, _FALSE) else kind

    def _list(self) -> list[bytes] | None:
        texts = []
        for kind in self.items():
            item = self.value(kind)
            if kind == _BINARY:
                texts.append(item)
        return texts or None

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, _BITS, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 the bit that says there is more
                return value
        msg = f"a number of more than {_BITS} bits"
        raise ValueError(msg)

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _take(self, size: int) -> bytes:
        self.at += size
        return self._data[self.at - size : self.at]

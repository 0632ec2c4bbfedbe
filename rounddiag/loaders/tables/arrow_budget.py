"""How much memory a stream of Arrow takes, told before its buffers are decompressed.

A message is a flatbuffer and a body. Compressed buffers of a body start with the number
of bytes that they become (Arrow's Message.fbs, RecordBatch and BodyCompression).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

# Places of fields in the tables of a flatbuffer.
_HEADER, _BUFFERS, _COMPRESSION, _DATA = 2, 2, 3, 1
_SIZE = 8  # bytes of a number before a compressed buffer


def num_bytes(file: Any) -> Iterator[int]:  # noqa: ANN401 pyarrow has no types
    """Yield what each message of a stream takes when it is decompressed."""
    for message in pa.ipc.MessageReader.open_stream(file):
        body = 0 if message.body is None else message.body.size
        is_batch = message.type in {"record batch", "dictionary"}
        yield max(body, _decompressed(message) if is_batch and body else 0)


def _decompressed(message: Any) -> int:  # noqa: ANN401 as above
    told, body = memoryview(message.metadata), memoryview(message.body)
    batch = _table(told, _number(told, 0, 4), _HEADER)
    if message.type == "dictionary":
        batch = _table(told, batch, _DATA)
    buffers = _field(told, batch, _BUFFERS)
    if not buffers or not _field(told, batch, _COMPRESSION):
        return 0
    first = buffers + _number(told, buffers, 4)
    starts = [first + 4 + 16 * i for i in range(_number(told, first, 4))]
    places = [(_number(told, at, 8), _number(told, at + 8, 8)) for at in starts]
    sizes = (_number(body, at, _SIZE) for at, size in places if size > _SIZE)
    return sum(max(size, 0) for size in sizes)  # -1 stands before what is as it was


def _table(told: memoryview, table: int, field: int) -> int:
    """Return where the table stands that a field of a table refers to."""
    at = _field(told, table, field)
    return at + _number(told, at, 4)


def _field(told: memoryview, table: int, field: int) -> int:
    """Return where a field of a table stands; 0 where it is not there."""
    names = table - _number(told, table, 4)
    place = 4 + 2 * field
    offset = _number(told, names + place, 2) if place < _number(told, names, 2) else 0
    return table + offset if offset else 0


def _number(data: memoryview, at: int, size: int) -> int:
    """Return a number; a LookupError where it would stand outside."""
    if not 0 <= at <= len(data) - size:
        msg = "a place outside of a message"
        raise LookupError(msg)
    return int.from_bytes(data[at : at + size], "little", signed=size > 2)  # noqa: PLR2004 offsets of fields have no sign

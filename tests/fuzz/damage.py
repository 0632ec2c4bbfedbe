"""Ways to damage the bytes of a file; each is a function of a generator and bytes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Damage = Callable[[Random, bytes], bytes]

_HEAD = 8_000  # where most of a file's structure stands, at either end
_LIES = (0, 1, 0x7F, 0xFF, 1 << 15, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1)


def truncated(data: bytes, percent: int) -> bytes:
    """Keep the first so many percent."""
    return data[: len(data) * percent // 100]


def _place(random: Random, data: bytes) -> int:
    """Choose a place: at the start, at the end, or anywhere."""
    start = random.randrange(min(len(data), _HEAD))
    places = (start, len(data) - 1 - start, random.randrange(len(data)))
    return random.choice(places)


def bits_flipped(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8, 64))):
        changed[_place(random, data)] ^= 1 << random.randrange(8)
    return bytes(changed)


def bytes_replaced(random: Random, data: bytes) -> bytes:
    at, size = _place(random, data), random.choice((1, 2, 4, 16, 256))
    return data[:at] + random.randbytes(size) + data[at + size :]


def bytes_lost(random: Random, data: bytes) -> bytes:
    at, size = _place(random, data), random.choice((1, 2, 4, 16, 256, 4096))
    return data[:at] + data[at + size :]


def bytes_doubled(random: Random, data: bytes) -> bytes:
    at, size = _place(random, data), random.choice((1, 4, 64, 4096))
    return data[: at + size] + data[at:]


def parts_swapped(random: Random, data: bytes) -> bytes:
    size = random.choice((4, 8, 64, 512))
    first, second = sorted((_place(random, data), _place(random, data)))
    if first + size > second:
        return data[second:] + data[:second]
    parts = data[second : second + size], data[first + size : second]
    return (
        b"".join((data[:first], parts[0], parts[1], data[first : first + size]))
        + data[second + size :]
    )


def lengths_that_lie(random: Random, data: bytes) -> bytes:
    """Write a large or small number where a length may stand."""
    at, size = _place(random, data), random.choice((1, 2, 4, 8))
    number = random.choice(_LIES) % (1 << 8 * size)
    order = random.choice(("little", "big"))
    return data[:at] + number.to_bytes(size, order) + data[at + size :]  # type: ignore[arg-type]


DAMAGES: tuple[Damage, ...] = (
    bits_flipped,
    bytes_replaced,
    bytes_lost,
    bytes_doubled,
    parts_swapped,
    lengths_that_lie,
)

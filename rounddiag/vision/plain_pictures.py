"""A screenshot of what a program has in memory: bytes, a data URL, an image, pixels."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from rounddiag.vision.screenshots import EncodedScreenshot, RawScreenshot, Screenshot


def picture_of(value: Any) -> Screenshot | None:  # noqa: ANN401 whatever a cell holds
    """Return a picture: bytes, a struct with `bytes`, a data URL, an image, its pixels.

    None for anything else, such as a path: a file must not make us read other files.

    Examples
    --------
    >>> picture_of(np.zeros((2, 4, 3), dtype=np.uint8)).size
    (4, 2)
    >>> picture_of("shot.png") is None
    True
    """
    match value:
        case Screenshot():
            return value
        case bytes():
            return EncodedScreenshot(data=value)
        case str() | Mapping():
            return picture_of(_encoded_in(value))
        case np.ndarray() if value.dtype == np.uint8:
            return picture_of_pixels(value.shape, lambda: _bytes_of(value))
        case _ if type(value).__module__.startswith("PIL."):
            return picture_of_image(
                value.mode, value.size, value.tobytes, value.getpalette()
            )
    return None


_MODES = {3: "RGB", 4: "RGBA"}  # by the number of bytes of a pixel


def picture_of_pixels(
    shape: Sequence[int], read: Callable[[], bytes]
) -> Screenshot | None:
    """Return the picture of rows of pixels, each of three or four bytes."""
    match [*shape]:
        case [height, width, depth] if depth in _MODES:
            return picture_of_image(_MODES[depth], (width, height), read)
    return None


def picture_of_image(
    mode: str, size: tuple[int, int], read: Callable[[], bytes], palette: object = None
) -> Screenshot | None:
    """Return the picture of a Pillow image; None of an empty one."""
    width, height = size
    if min(size) < 1:
        return None
    return RawScreenshot(
        mode=mode,
        width=width,
        height=height,
        data=read,
        palette=palette if isinstance(palette, list) else None,
    )


def _bytes_of(pixels: np.ndarray[Any, Any]) -> bytes:
    return bytes(np.ascontiguousarray(pixels).data)


def _encoded_in(value: str | Mapping[Any, Any]) -> object:
    """Return the bytes in a data URL or in a struct; None for any other text."""
    if isinstance(value, Mapping):
        return value.get("bytes")
    head = _DATA_URL.match(value)
    with suppress(ValueError):
        return b64decode(value[head.end() :]) if head else None
    return None


_DATA_URL = re.compile(r"data:image/[\w.+-]+;base64,")

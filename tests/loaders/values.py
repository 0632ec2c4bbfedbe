"""Values that several tests put into files: pictures, and arrays of objects."""

from __future__ import annotations

import io
from base64 import b64encode
from typing import Any

import numpy as np
from PIL import Image


def png(colour: str = "white", size: tuple[int, int] = (4, 3)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, format="PNG")
    return buffer.getvalue()


def url_of(data: bytes) -> str:
    return f"data:image/png;base64,{b64encode(data).decode()}"


def objects(*values: object) -> np.ndarray[Any, Any]:
    """Return an array of objects, one a row, whatever they are."""
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array

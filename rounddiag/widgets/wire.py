"""What travels between kernel and page: JSON, and binary buffers beside it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# What a page has typed arrays for; wider numbers are made narrower.
_NARROWED = {"float64": "float32", "int64": "int32", "bool": "uint8"}


def packed(result: object) -> tuple[Any, list[bytes]]:
    """Take arrays and bytes out of a result, for `unpacked` in the page.

    Parameters
    ----------
    result : object
        Dictionaries and lists of any depth, with arrays and bytes among them.

    Returns
    -------
    plain : object
        What JSON can hold: NaN and infinities are None, and each array or bytes is
        `{"$": index, "dtype": name}`.
    buffers : list of bytes

    Examples
    --------
    >>> packed({"diff": np.array([0.5, 1.0]), "reward": float("nan")})[0]
    {'diff': {'$': 0, 'dtype': 'float32'}, 'reward': None}
    """
    buffers: list[bytes] = []
    return _plain(result, buffers), buffers


def _plain(value: object, buffers: list[bytes]) -> object:
    """Return what JSON can hold; put the rest into the buffers."""
    match value:
        case dict():
            return {str(key): _plain(inner, buffers) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, buffers) for inner in value]
        case bytes():
            return _taken(value, "bytes", buffers)
        case np.ndarray():
            name = _NARROWED.get(value.dtype.name, value.dtype.name)
            data = value.astype(name, copy=False).tobytes()
            return _taken(data, name, buffers)
    return _scalar(value.item() if isinstance(value, np.generic) else value)


def _scalar(value: object) -> object:
    if isinstance(value, str):  # broken text of a file may hold halves of characters
        return value.encode("utf-8", "backslashreplace").decode()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _taken(data: bytes, dtype: str, buffers: list[bytes]) -> dict[str, object]:
    buffers.append(data)
    return {"$": len(buffers) - 1, "dtype": dtype}

"""What travels to the page: JSON, and arrays as binary buffers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rounddiag.wording import encodable

# JavaScript's typed arrays: wider numbers are narrowed.
_NARROWED = {"float64": "float32", "int64": "int32", "bool": "uint8"}


def serialize(payload: object) -> tuple[Any, list[bytes]]:
    """Split a payload into JSON and binary buffers, for the page's `deserialize`.

    Parameters
    ----------
    payload : object
        Nested dictionaries and lists with arrays and bytes among their values.

    Returns
    -------
    plain : object
        For JSON: NaN and infinities are None, and each array or bytes is
        `{"$": index, "dtype": name}`.
    buffers : list of bytes

    Examples
    --------
    >>> serialize({"diff": np.array([0.5, 1.0]), "reward": float("nan")})[0]
    {'diff': {'$': 0, 'dtype': 'float32'}, 'reward': None}
    """
    buffers: list[bytes] = []
    return _plain(payload, buffers), buffers


def _plain(value: object, buffers: list[bytes]) -> object:
    """Return the JSON part of a value; append its binary part to the buffers."""
    match value:
        case dict():
            return {str(key): _plain(inner, buffers) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, buffers) for inner in value]
        case bytes():
            return _append(value, "bytes", buffers)
        case np.ndarray():
            name = _NARROWED.get(value.dtype.name, value.dtype.name)
            data = value.astype(name, copy=False).tobytes()
            return _append(data, name, buffers)
    return _scalar(value.item() if isinstance(value, np.generic) else value)


def _scalar(value: object) -> object:
    if isinstance(value, str):  # broken text of a file may hold lone surrogates
        return encodable(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _append(data: bytes, dtype: str, buffers: list[bytes]) -> dict[str, object]:
    buffers.append(data)
    return {"$": len(buffers) - 1, "dtype": dtype}

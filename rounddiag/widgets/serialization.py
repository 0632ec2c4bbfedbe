"""Payloads as JSON, with the arrays in them as binary buffers."""

from __future__ import annotations

import json
import math
from typing import Any, TypeGuard

import numpy as np
import pandas as pd

from rounddiag.wording import encodable

# JavaScript's typed arrays: wider numbers are narrowed.
_NARROWED = {"float64": "float32", "int64": "int32", "bool": "uint8"}
# Longer lists of text become one buffer: one by one, texts take most of the time.
_MANY_TEXTS = 64


def serialize(payload: object) -> tuple[Any, list[bytes]]:
    """Split a payload into JSON and binary buffers, for the page's `deserialize`."""
    buffers: list[bytes] = []
    return _plain(payload, buffers), buffers


def _plain(value: object, buffers: list[bytes]) -> object:
    """Return the JSON part of a value; append its binary part to the buffers."""
    match value:
        case dict():
            return {str(key): _plain(inner, buffers) for key, inner in value.items()}
        case list() if len(value) > _MANY_TEXTS and _are_texts(value):
            return _append(_as_json(value), "texts", buffers)
        case list() | tuple():
            return [_plain(inner, buffers) for inner in value]
        case bytes():
            return _append(value, "bytes", buffers)
        case np.ndarray() | pd.Categorical():
            return _append_array(value, buffers)
    return _scalar(value.item() if isinstance(value, np.generic) else value)


def _are_texts(values: list[object]) -> TypeGuard[list[str]]:
    return {*map(type, values)} == {str}


def _as_json(texts: list[str]) -> bytes:
    try:
        return json.dumps(texts, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return json.dumps([encodable(text) for text in texts]).encode()


def _scalar(value: object) -> object:
    if isinstance(value, str):  # broken text of a file may hold lone surrogates
        return encodable(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _append_array(
    array: np.ndarray[Any, Any] | pd.Categorical[Any], buffers: list[bytes]
) -> dict[str, object]:
    if isinstance(array, pd.Categorical):
        names = [encodable(str(name)) for name in array.categories]
        return {**_append(array.codes.tobytes(), "codes", buffers), "names": names}
    name = _NARROWED.get(array.dtype.name, array.dtype.name)
    return _append(array.astype(name, copy=False).tobytes(), name, buffers)


def _append(data: bytes, dtype: str, buffers: list[bytes]) -> dict[str, object]:
    buffers.append(data)
    return {"$": len(buffers) - 1, "dtype": dtype}

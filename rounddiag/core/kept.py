"""Whether a batch is as it was when something of it was computed and kept."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import TypeAlias

import numpy as np
from torch import Tensor

from rounddiag.batch import Batch

Key: TypeAlias = tuple[object, ...]


def state_of(batch: Batch) -> Key:
    """Return what changes with each edit of a batch."""
    return tuple(_fingerprint(getattr(batch, field.name)) for field in fields(batch))


def _fingerprint(value: object) -> object:
    """Return the version of tensors, and a hash of arrays and plain values."""
    if isinstance(value, Tensor):
        # Tensors of inference mode count no versions: their sum stands for them.
        is_counted = not value.is_inference()
        return value._version if is_counted else float(value.double().sum())  # noqa: SLF001
    if isinstance(value, np.ndarray):
        is_object = value.dtype == object
        data = repr(value.tolist()).encode() if is_object else value.tobytes()
        return value.dtype.str, hashlib.blake2b(data, digest_size=16).digest()
    if isinstance(value, Mapping):
        return tuple((str(name), _fingerprint(item)) for name, item in value.items())
    if isinstance(value, list | tuple) and any(
        isinstance(item, Tensor | Mapping | list | np.ndarray) for item in value
    ):
        return tuple(map(_fingerprint, value))
    if isinstance(value, list):
        return repr(value)
    plain = value is None or isinstance(value, str | int | float | bool)
    return value if plain else id(value)

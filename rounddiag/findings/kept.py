"""The diagnosis of a batch, kept on the batch until something of it changes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeAlias, TypeVar

import numpy as np

from rounddiag.batch import Batch
from rounddiag.findings.causes import CAUSES
from rounddiag.findings.reference import REFERENCE
from rounddiag.findings.registry import DETECTORS

Key: TypeAlias = tuple[object, ...]
Made = TypeVar("Made")  # a Diagnosis
_NAME = "_diagnoses"  # `Batch.__getstate__` leaves it out
_MOST = 8  # of one batch: pairs, kinds, healthy batches


def keep_on(
    batch: Batch, others: Key, make: Callable[[], Made], healthy: Batch | None
) -> Made:
    """Return the diagnosis that a batch has for a key, or make and keep it.

    It is an attribute: `replace` and pickle leave it out, and the garbage collector
    frees it with the batch, to which it refers.
    """
    known: Made | None = find_kept(batch, others, healthy)
    if known is not None:
        return known
    key = _key(batch, others, healthy)
    diagnosis = make()
    entries = batch.__dict__.setdefault(_NAME, [])
    entries.append((key, healthy, diagnosis))
    del entries[:-_MOST]
    return diagnosis


def find_kept(batch: Batch, others: Key, healthy: Batch | None) -> Any:  # noqa: ANN401 what `make` returned
    """Return the diagnosis that a batch has for a key, if it has one."""
    entries: list[tuple[Key, Batch | None, Any]]
    entries = batch.__dict__.get(_NAME, [])
    if not entries:
        return None
    key = _key(batch, others, healthy)
    matches = (
        diagnosis
        for known, other, diagnosis in entries
        if other is healthy and known == key
    )
    return next(matches, None)


def _key(batch: Batch, others: Key, healthy: Batch | None) -> Key:
    tables = tuple(tuple(table.items()) for table in (REFERENCE, DETECTORS, CAUSES))
    return (others, tables, _state(batch), healthy is not None and _state(healthy))


def _state(batch: Batch) -> Key:
    """Return what changes with each edit of a batch."""
    return tuple(_fingerprint(getattr(batch, field.name)) for field in fields(batch))


def _fingerprint(value: object) -> object:
    """Return the version of tensors, and a hash of arrays and plain values."""
    if _is_tensor(value):
        # Tensors of inference mode count no versions: their sum stands for them.
        tensor: Any = value
        is_counted = not tensor.is_inference()
        return tensor._version if is_counted else float(tensor.double().sum())  # noqa: SLF001
    if isinstance(value, np.ndarray):
        is_object = value.dtype == object
        data = repr(value.tolist()).encode() if is_object else value.tobytes()
        return value.dtype.str, hashlib.blake2b(data, digest_size=16).digest()
    if isinstance(value, Mapping):
        return tuple((str(name), _fingerprint(item)) for name, item in value.items())
    if isinstance(value, list | tuple) and any(
        _is_tensor(item) or isinstance(item, Mapping | list | np.ndarray)
        for item in value
    ):
        return tuple(map(_fingerprint, value))
    if isinstance(value, list):
        return repr(value)
    plain = value is None or isinstance(value, str | int | float | bool)
    return value if plain else id(value)


def _is_tensor(value: object) -> bool:
    """Return whether a value is a tensor of torch, which this layer does not import."""
    return hasattr(value, "is_inference")

"""The diagnosis of a batch, kept on the batch until something of it changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rounddiag.batch import Batch
from rounddiag.core.kept import Key, state_of
from rounddiag.findings.causes import CAUSES
from rounddiag.findings.reference import REFERENCE
from rounddiag.findings.registry import DETECTORS

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
    return (others, tables, state_of(batch), healthy is not None and state_of(healthy))

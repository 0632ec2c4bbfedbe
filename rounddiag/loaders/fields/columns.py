"""Columns with one value a sample, as numpy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def plain_columns(
    columns: Mapping[str, Any], num_samples: int
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns that hold one plain value (text, number, flag) a sample.

    Parameters
    ----------
    columns : mapping of str to sequence or array
    num_samples : int

    Returns
    -------
    dict of str to array
        Columns of dictionaries, lists or objects are left out.

    Examples
    --------
    >>> plain_columns({"turns": [2, 3], "text": ["a", None], "chat": [[], []]}, 2)
    {'turns': array([2, 3]), 'text': array(['a', None], dtype=object)}
    """
    found = {name: _plain(values) for name, values in columns.items()}
    return {
        name: values
        for name, values in found.items()
        if values is not None and len(values) == num_samples
    }


def _plain(values: Sequence[Any]) -> np.ndarray[Any, Any] | None:
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values if values.ndim == 1 else None
    items = [v.item() if isinstance(v, np.generic) else v for v in values]
    if not all(v is None or isinstance(v, str | int | float) for v in items):
        return None
    kinds = {type(v) for v in items}
    if kinds in ({bool}, {float}) or (kinds == {int} and _fit_int64(items)):
        return np.array(items)
    column = np.empty(len(items), dtype=object)
    column[:] = items
    return column


def _fit_int64(values: list[int]) -> bool:
    return all(-(1 << 63) <= value < 1 << 63 for value in values)

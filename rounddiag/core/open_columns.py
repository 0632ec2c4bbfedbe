"""Columns that a batch has of its samples and rounds, whatever they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rounddiag.schema import TOKENS

if TYPE_CHECKING:
    from rounddiag.batch import Batch

    Array = np.ndarray[Any, Any]

_EXACT = 1 << 53  # up to here every integer is a float64


def open_names(batch: Batch) -> list[str]:
    """Return the names of its open columns that frames do not have for themselves."""
    names = dict.fromkeys([*batch.round_columns, *batch.sample_columns])
    own = {column.name for column in TOKENS.columns}
    return [name for name in names if name not in own]


def open_values(batch: Batch, name: str) -> Array:
    """Return an open column with one value a round; rounds come before samples."""
    if name in batch.round_columns:
        return round_values(batch, name)
    values: Array = batch.sample_columns[name][batch.rounds.sample.cpu().numpy()]
    return values


def round_values(batch: Batch, name: str) -> Array:
    """Return a column of `round_columns` with one value a round of the batch.

    Parameters
    ----------
    batch : Batch
    name : str

    Returns
    -------
    array, shape (num_rounds,)
        In the order of `batch.rounds`; rounds that the column leaves out are NaN or
        None, as `spread` has it. Of several rows of one round the last counts.

    Examples
    --------
    >>> import rounddiag as rd
    >>> batch = rd.load("sample_data/healthy.parquet")
    >>> len(round_values(batch, "action")) == batch.num_rounds
    True
    """
    columns = batch.round_columns
    sample, index = columns["sample"], columns["round"]
    counts = np.bincount(batch.rounds.sample.cpu().numpy(), minlength=len(batch))
    known = np.flatnonzero((sample >= 0) & (sample < len(batch)) & (index >= 0))
    known = known[index[known] < counts[sample[known]]]
    first = np.cumsum(counts) - counts
    places = (first[sample[known]] + index[known]).astype(np.int64)
    return spread(columns[name][known], places, batch.num_rounds)


def spread(values: Array, places: Array, size: int) -> Array:
    """Put values at their places among `size`; the others are NaN or None.

    NaN stands where the values are numbers that a float64 can hold, else None.

    Examples
    --------
    >>> spread(np.array([7, 8]), np.array([2, 0]), 3)
    array([ 8., nan,  7.])
    >>> spread(np.array(["a"]), np.array([1]), 2)
    array([None, 'a'], dtype=object)
    """
    is_there = np.zeros(size, dtype=bool)
    is_there[places] = True
    if is_there.all():
        out = np.empty(size, dtype=values.dtype)
    elif values.dtype.kind == "f" or _is_exact_as_float(values):
        out = np.full(size, np.nan, dtype=np.result_type(values, np.float16))
    else:
        out = np.full(size, None, dtype=object)
    out[places] = values
    return out


def _is_exact_as_float(values: Array) -> bool:
    if values.dtype.kind not in "iu" or not len(values):
        return False
    return int(values.min()) >= -_EXACT and int(values.max()) <= _EXACT

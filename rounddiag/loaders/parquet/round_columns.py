"""`round_columns` as one column: a list of structs, one a round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rounddiag.errors import BatchError
from rounddiag.loaders.parquet.dtypes import array_mark, marked_array
from rounddiag.loaders.parquet.open_columns import array_of, open_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    Columns = Mapping[str, np.ndarray[Any, Any]]


def rounds_column(columns: Columns, num_samples: int) -> tuple[pa.Field, pa.Array]:
    """Return the columns as a list of structs a sample, in the order they have there.

    Raises
    ------
    BatchError
        If a row is of no sample of the batch.
    """
    sample = columns["sample"]
    sizes = _rows_a_sample(sample, num_samples)
    order = np.argsort(sample, kind="stable")
    found = [
        open_column(name, values[order])
        for name, values in columns.items()
        if name != "sample"
    ]
    structs = pa.StructArray.from_arrays(
        [array for _, array in found], fields=[field for field, _ in found]
    )
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs)
    # The lists stand for `sample`; what is left of that column is its dtype.
    mark = array_mark(sample.dtype)
    return pa.field("round_columns", array.type, metadata=mark), array


def rounds_of(
    values: pa.ChunkedArray, sizes: np.ndarray[Any, Any], field: pa.Field
) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns of structs that stand end to end, with `sample` first."""
    columns = [
        pa.chunked_array([column]) for column in values.combine_chunks().flatten()
    ]
    return {
        "sample": marked_array(np.repeat(np.arange(len(sizes)), sizes), field),
        **{
            part.name: array_of(part, column)
            for part, column in zip(values.type, columns, strict=True)
        },
    }


def _rows_a_sample(
    sample: np.ndarray[Any, Any], num_samples: int
) -> np.ndarray[Any, Any]:
    if ((sample < 0) | (sample >= num_samples)).any():
        raise BatchError.build(
            key="round_columns",
            expected=f"a `sample` from 0 to {num_samples - 1} in each row",
            found=f"values from {sample.min()} to {sample.max()}",
            advice="Number the samples as the batch does.",
        )
    return np.bincount(sample.astype(np.int64), minlength=num_samples)

"""The columns of a file, each read when it is asked for and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from rounddiag.errors import LoadError
from rounddiag.loaders.parquet.columns import tensor_of
from rounddiag.loaders.parquet.dtypes import marked_tensor

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from torch import Tensor

# The numeric types that torch has too.
_SIGNED = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
_UNSIGNED = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
_FLOATS = [pa.float16(), pa.float32(), pa.float64()]
_NUMBERS = [pa.bool_(), *_SIGNED, *_UNSIGNED, *_FLOATS]
RESAVE = "Save the batch with `rounddiag.save`."


class TableReader:
    """Reads one column at a time, so that only one is in memory twice.

    Parameters
    ----------
    source : ParquetFile
    """

    def __init__(self, source: pq.ParquetFile) -> None:
        self._source = source
        self.names: list[str] = source.schema_arrow.names

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def field(self, name: str) -> pa.Field:
        """Return a column's type, with its metadata."""
        return self._source.schema_arrow.field(name)

    def column(self, name: str) -> pa.ChunkedArray:
        """Read a column.

        Raises
        ------
        LoadError
            If there is not exactly one of this name.
        """
        count = self.names.count(name)
        if count != 1:
            raise LoadError.build(
                key=name,
                expected="one column of this name",
                found=f"{count} among {self.names}",
                advice=RESAVE,
            )
        return self._source.read([name], use_threads=False).column(name)

    def lists(self, name: str) -> tuple[pa.ChunkedArray, Tensor]:
        """Return the values of a column of lists, end to end, and the lists' sizes.

        Raises
        ------
        LoadError
            If it holds anything else, or no list in a row.
        """
        column = self.column(name)
        fits = pa.types.is_list(column.type)
        require(column, name, "a list in each row", fits=fits)
        sizes = pc.list_value_length(column).to_numpy().astype(np.int64)
        return pc.list_flatten(column), torch.from_numpy(sizes)

    def numbers(self, name: str) -> tuple[Tensor, Tensor]:
        """Return what `lists` does of a column of lists of numbers.

        Raises
        ------
        LoadError
            If it holds anything else.
        """
        values, sizes = self.lists(name)
        expected = "a list of numbers in each row"
        require(values, name, expected, fits=values.type in _NUMBERS)
        return marked_tensor(tensor_of(values), self.field(name)), sizes

    def number(self, name: str) -> Tensor:
        """Return a column of one number a row.

        Raises
        ------
        LoadError
            If it holds anything else.
        """
        column = self.column(name)
        require(column, name, "numbers", fits=column.type in _NUMBERS)
        return marked_tensor(tensor_of(column), self.field(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a column of strings.

        Raises
        ------
        LoadError
            If it holds anything else.
        """
        column = self.column(name)
        require(column, name, "strings", fits=pa.types.is_string(column.type))
        return tuple(column.to_pylist())


def require(column: pa.ChunkedArray, name: str, expected: str, *, fits: bool) -> None:
    """Raise a LoadError unless a column's type fits and no value is missing."""
    if not fits or column.null_count:
        nulls = f" with {column.null_count} nulls" if column.null_count else ""
        raise LoadError.build(
            key=name,
            expected=expected,
            found=f"{column.type}{nulls}",
            advice=RESAVE,
        )

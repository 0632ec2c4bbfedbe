"""A named value per sample, round or token, of which some are unknown.

============  ======================================================================
`catalogue`   `Catalogue`: the columns of a batch by name; `register_column` adds one
`column`      `Column`: values, what is known, codes; its scope and its kind
`phrases`     a condition in words: "on rank 3", "from round 5 on"
`predicates`  conditions on a column, and the rows that meet them
`sources`     numbers in memory as tensors, and rows of different lengths
============  ======================================================================
"""

from rounddiag.columns.catalogue import Catalogue, register_column
from rounddiag.columns.column import Column, ColumnSource, Kind, Scope

__all__ = ["Catalogue", "Column", "ColumnSource", "Kind", "Scope", "register_column"]

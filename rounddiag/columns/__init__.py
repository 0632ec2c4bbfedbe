"""A named value per sample, round or token, of which some are unknown.

============  ======================================================================
`column`      `Column`: values, what is known, codes; its scope and its kind
`predicates`  conditions on a column, and the rows that meet them
`sources`     numbers in memory as tensors, and rows of different lengths
============  ======================================================================
"""

from rounddiag.columns.column import Column, Kind, Scope, Source

__all__ = ["Column", "Kind", "Scope", "Source"]

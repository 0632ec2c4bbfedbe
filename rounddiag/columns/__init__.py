"""A named value per sample, round or token, of which some are unknown.

============  ======================================================================
`column`      `Column`: values, what is known, codes; its scope and its kind
`predicates`  conditions on a column, and the rows that meet them
============  ======================================================================
"""

from rounddiag.columns.column import Column, Kind, Scope, Source

__all__ = ["Column", "Kind", "Scope", "Source"]

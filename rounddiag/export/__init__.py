"""Pages to look at and to mail, without a kernel and without a network."""

from rounddiag.export.page import report

__all__ = ["report"]

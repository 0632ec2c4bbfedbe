"""Contracts of a batch, checked without statistics: facts, each with its places."""

from rounddiag.checks.door import check, checked
from rounddiag.checks.report import Check, Checks

__all__ = ["Check", "Checks", "check", "checked"]

"""Contracts of a batch, checked without statistics: facts, each with its places."""

from rounddiag.checks.contracts import Check, Checks
from rounddiag.checks.run import check, checked

__all__ = ["Check", "Checks", "check", "checked"]

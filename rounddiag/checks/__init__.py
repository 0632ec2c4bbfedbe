"""Contracts of a batch, checked without statistics: facts, each with its places."""

from rounddiag.checks.contracts import Check, Checks
from rounddiag.checks.run import check, with_check_results

__all__ = ["Check", "Checks", "check", "with_check_results"]

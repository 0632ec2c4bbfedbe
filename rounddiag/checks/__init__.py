"""Contracts of a batch, checked without statistics: facts, each with its places."""

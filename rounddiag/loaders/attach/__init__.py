"""Scores that were made elsewhere: read (`entries`), matched token by token, added."""

from rounddiag.loaders.attach.attaching import attach

__all__ = ["attach"]

"""The explorer: from a batch to one token beside its screenshot."""

from rounddiag.widgets.explorer import Explorer, explore

__all__ = ["Explorer", "explore"]

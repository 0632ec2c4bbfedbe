"""The explorer: from a batch to one token beside its screenshot."""

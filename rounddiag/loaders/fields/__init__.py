"""Fields under verl's names, as a Batch."""

"""Screenshots of a batch, and where they stand among its tokens."""

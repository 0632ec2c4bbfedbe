"""What one training step saved: aligned and validated tensors, no files."""

from rounddiag.batch.batch import Batch

__all__ = ["Batch"]

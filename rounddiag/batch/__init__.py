"""What one training step saved: aligned and validated tensors, no files."""

from rounddiag.batch.container import Batch

__all__ = ["Batch"]
